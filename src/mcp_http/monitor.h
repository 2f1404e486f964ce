/* The monitor of cellgate-mcp-http: what its files share. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>
#include "base/log.h"
#include "mcp_http/options.h"

#define CG_HF_TOKEN_CHARS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/="

/* Reads the token of @file, or of the state folder; makes it if it is absent. @path: where. */
int cg_hf_token(const char *file, char path[PATH_MAX], char token[CG_HF_MAX_TOKEN + 1], struct cg_err *err);
/* Fills what the monitor and the front need of the second token. */
int cg_hf_approver(struct hf_options *o, char path[PATH_MAX], struct cg_err *err);
/* Fills what the front and the verifier get about OAuth. @own_uri: without --public-url. */
int cg_hf_oauth(struct hf_options *o, const char *own_uri, struct cg_err *err);
/* Reads the certificate and the key, and checks that they fit. */
int cg_hf_tls(const char *cert, const char *key, struct hf_tls *ret, struct cg_err *err);
/* Negative: the key is not in a folder that all sandboxes hide as a whole. */
int cg_hf_tls_check_hidden(const char *key, struct cg_err *err);
/* Whether one of the files differs from @seen, which becomes what they are now. */
bool cg_hf_tls_changed(const char *cert, const char *key, struct stat seen[2]);
/* Serves until a signal ends it, or one of its processes. The exit status. */
int cg_hf_monitor(struct hf_options *o, const struct cg_log *log);
