/* Options of `cellgate mcp serve --http`, as cellgate-mcp-http gets them. */
#pragma once

#include "mcp_http/wire.h"

struct hf_options {
        struct hf_setup setup;      /* all but the token */
        struct cg_host host;        /* of a port */
        uint16_t port;              /* 0: any */
        const char *path;           /* of a socket; NULL: a port */
        const char *token_file;     /* NULL: in the state folder */
        const char *approver_token; /* a file; NULL: there is none */
        const char *tls_cert, *tls_key;
        bool behind_proxy;
        const char *public_url;             /* NULL: not given */
        char approver[CG_HF_MAX_TOKEN + 1]; /* the token of approver_token; "": there is none */
        struct hf_verifier_setup verifier;  /* issuer "": no OAuth; audience "": the server's URL */
        char **words; /* of a session's command line, from "cellgate" on; NULL-terminated */
};

/* CG_E_INVAL, and CG_E_UNSUPPORTED for addresses that are not served. Borrows @argv. */
int cg_hf_parse(int argc, char **argv, struct hf_options *o, struct cg_err *err);
