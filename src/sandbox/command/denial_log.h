/*
 * Denials of a command: written to the violation log and the control socket as they happen,
 * summarized at the end. Part
 * of the keeper.
 */
#pragma once

#include <jansson.h>
#include "sandbox/settings/settings.h"

/* Different denials that are listed at the end. */
#define CG_DENIAL_LOG_LISTED 16
/* Bytes that one command may have logged: one denied again and again must not fill a disk. */
#define CG_DENIAL_LOG_BYTES (16u << 20)

struct cg_denial_log {
        const struct cg_settings *settings;    /* borrowed: whose ignoreViolations hold */
        const char *home;                      /* borrowed; NULL: unknown */
        char command[4096];                    /* the command's beginning, for these */
        int log;                               /* -1: none */
        int control;                           /* the control socket (borrowed); -1: none */
        size_t logged;                         /* bytes */
        bool with_text;                        /* it gets the sentences, too */
        uint64_t unsent;                       /* denials that the control socket had no room for */
        bool debug;                            /* each is reported at once, too */
        char *sentences[CG_DENIAL_LOG_LISTED]; /* sentences */
        char *folders[CG_DENIAL_LOG_LISTED];   /* that a sentence is about; NULL: about one file */
        uint64_t times[CG_DENIAL_LOG_LISTED];
        size_t n;
        uint64_t more;
};

/* @log (takes) may be -1. */
void cg_denial_log_init(struct cg_denial_log *v, const struct cg_settings *s, const char *home, int log,
                        bool debug);
void cg_denial_log_fini(struct cg_denial_log *v);
/* With debug: a line on standard error, in srt's format. Control characters are escaped. */
void cg_denial_log_debug(const struct cg_denial_log *v, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));
/* A denial: an object as denial.h has them (takes). */
void cg_denial_log_add(struct cg_denial_log *v, json_t *denial);
/* Lists the denials on standard error, if there were any. */
void cg_denial_log_summary(const struct cg_denial_log *v);
