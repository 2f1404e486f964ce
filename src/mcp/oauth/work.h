/*
 * OAuth of one MCP server for a caller that must not block: the header Authorization, and what to
 * do about challenges. Each has a thread while it works: in libuv's pool a few servers that do not
 * answer would delay all others. All functions and callbacks: the loop's thread.
 */
#pragma once

#include <uv.h>
#include "base/log.h"
#include "mcp/oauth/oauth.h"

struct cg_oauth_work;

struct cg_oauth_work_options {
        uv_loop_t *loop;
        const char *name, *url, *ca_file, *proxy, *no_proxy; /* copied, as is @config */
        const struct cg_oauth_config *config;
        const struct cg_log *log; /* why there is no token; NULL: none */
        /*
         * Called when a request of cg_oauth_work_begin() ends, unless cg_oauth_work_free() was
         * called: cg_oauth_work_header() has the new value, or @err says why there is none.
         */
        void (*done)(void *data, const struct cg_err *err);
        void *data;
};

int cg_oauth_work_new(const struct cg_oauth_work_options *o, struct cg_oauth_work **ret, struct cg_err *err);
/* Stops a request that was begun; the memory is freed from the loop. NULL is a no-op. */
struct cg_oauth_work *cg_oauth_work_free(struct cg_oauth_work *w);

bool cg_oauth_work_is_busy(const struct cg_oauth_work *w);
/* Value of the header; NULL: none. Valid until the next done(). */
const char *cg_oauth_work_header(const struct cg_oauth_work *w);
/* Replaces the token in @text (changed in place, never longer) by "***". */
void cg_oauth_work_redact(const struct cg_oauth_work *w, char *text);
/*
 * Begins to get the header, by cg_oauth_authorization() with @status 0, else by
 * cg_oauth_challenged() for the current header. @challenge: moved out of it; NULL with @status 0.
 * @place: where that response came from (cg_http_peer()). Must not be busy.
 */
int cg_oauth_work_begin(struct cg_oauth_work *w, int status, struct cg_oauth_challenge *challenge,
                        enum cg_addr_class place, struct cg_err *err);
