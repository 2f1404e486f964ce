/*
 * cellgate-node: `cellgate node`. Starts a supervisor, checks the machine's sandboxes, turns the
 * log into JSON, and ends with the supervisor. With --http a process without rights (front.c) reads
 * the network's bytes; what it answers comes from here, by the socket at descriptor NODE_CONTROL:
 * it sends a byte, and gets a struct node_state.
 */
#pragma once

#include <stdbool.h>
#include "base/err.h"
#include "base/host.h"

struct node_options {
        int slots, client_slots, memory_mib, spares, log_level;
        int64_t drain_ms;
        const char *link, *kernel_env, *preload, *tier, *tenant;
        bool http, http_open;
        struct cg_host host;
        uint16_t port;
};

#define NODE_CONTROL  3
#define NODE_LISTENER 4

struct node_state {
        bool live, ready;
        char metrics[8192];
};

/* 0; CG_E_INVAL; 1: the help was printed, and *status is the exit status. */
int cg_node_parse(int argc, char **argv, struct node_options *o, int *status, struct cg_err *err);
int cg_node_run(const struct node_options *o);
/* In a process of its own, started by exec. */
int cg_node_front(void);
