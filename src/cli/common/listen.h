/* Addresses of this machine at which a program listens: the values of --http and --listen. */
#pragma once

#include <stdint.h>
#include "base/host.h"

/* "HOST:PORT", or "PORT" of 127.0.0.1. HOST is an address or localhost. CG_E_INVAL. */
int cg_listen_parse(const char *option, const char *text, struct cg_host *host, uint16_t *port,
                    struct cg_err *err);
/* *port: 0 becomes the one that was chosen. *ret (returns): does not block. */
int cg_listen_tcp(const char *option, const struct cg_host *host, uint16_t *port, int *ret,
                  struct cg_err *err);
