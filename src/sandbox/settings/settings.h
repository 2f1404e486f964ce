/*
 * A settings file: the JSON schema of sandbox-runtime (srt) 0.0.83 and, under one key "cellgate",
 * settings that srt does not have.
 *
 * Pure: text in, struct out; no file is opened and no name is looked up. The effects on a sandbox
 * are in rules.h and egress/client.h; the documentation is docs/settings.md.
 */
#pragma once

#include <jansson.h>
#include "base/util.h"
#include "sandbox/limit.h"

/* All texts are the settings object's own, valid until it is freed. */
struct cg_strs {
        const char **v;
        size_t n;
};

/* An entry of denyRead, allowRead, allowWrite, denyWrite. */
struct cg_path_entry {
        const char *path;
        bool literal; /* never a pattern */
};

struct cg_path_list {
        struct cg_path_entry *v;
        size_t n;
};

struct cg_settings_reason {
        const char *entry; /* of deniedDomains, spelled exactly so */
        const char *text;
};

struct cg_settings_network {
        struct cg_strs allowed;
        struct cg_strs denied;
        struct cg_settings_reason *reasons;
        size_t n_reasons;
        /* addresses and CIDR ranges that a name must not resolve to */
        struct cg_strs denied_addresses;
        struct cg_strs unix_sockets;
        struct cg_strs strip_response_headers;
        bool strict_allowlist;
        bool all_unix_sockets;
        bool local_binding;
        bool refuse_opaque_tunnels;
        bool require_host_match;
        int http_proxy_port;     /* 0: none */
        int socks_proxy_port;    /* 0: none */
        const char *mitm_socket; /* NULL: none */
        struct cg_strs mitm_domains;
        bool has_parent;         /* parentProxy is there: the environment's proxies are not asked */
        const char *parent_http; /* NULL each: none */
        const char *parent_https;
        const char *parent_no_proxy;
};

struct cg_settings_filesystem {
        bool disabled;
        struct cg_path_list deny_read;
        struct cg_path_list allow_read;
        struct cg_path_list allow_write;
        struct cg_path_list deny_write;
        bool allow_git_config;
};

enum cg_cred_mode { CG_CRED_DENY, CG_CRED_MASK };
enum cg_cred_no_match { CG_CRED_NO_MATCH_WARN, CG_CRED_NO_MATCH_DENY, CG_CRED_NO_MATCH_ERROR };

struct cg_settings_cred {
        const char *what; /* a file's path, or a variable's name */
        enum cg_cred_mode mode;
        const char *extract; /* as extract.h has it; NULL: all of it */
        /* decode and maskClaims were given: refused where mode is CG_CRED_MASK */
        bool decode, claims;
        enum cg_cred_no_match no_match;
        bool has_hosts; /* inject_hosts was given; else every allowed host */
        struct cg_strs inject_hosts;
        bool mask_duplicates;
};

struct cg_settings_creds {
        struct cg_settings_cred *files;
        size_t n_files;
        struct cg_settings_cred *vars;
        size_t n_vars;
        bool plaintext_inject;
};

struct cg_settings_ignore {
        const char *command;  /* part of a command line, or "*" */
        struct cg_strs texts; /* parts of a violation's line */
};

/* A TCP port of the sandbox's loopback, and the port of this machine at its other end. */
struct cg_settings_port {
        uint16_t inside;
        uint16_t host;
};

/* Ceiling of each list: each port is a listening socket, and lists are written by hand. */
#define CG_SETTINGS_PORTS_MAX 16

/* The key "cellgate". */
struct cg_settings_own {
        bool network_off; /* no proxy, nothing but an empty loopback interface */
        bool has_env;     /* env was given: only these variables are inherited; NAME or PREFIX* */
        struct cg_strs env;
        struct cg_sandbox_limits limits;
        const char *violation_log; /* a file that gets a JSON line for each denial; NULL: none */
        /* report denied files, for every process: slower */
        bool watch_files;
        /* hides ~/.ssh and the like; where it is not given: kernels do, commands do not */
        bool has_hide_credentials, hide_credentials;
        /* listened at on the host, connected to inside */
        struct cg_settings_port expose[CG_SETTINGS_PORTS_MAX];
        size_t n_expose;
        /* listened at inside, connected to on the host */
        struct cg_settings_port reach[CG_SETTINGS_PORTS_MAX];
        size_t n_reach;
        const char *tier;              /* as cg_tier_parse() takes it; NULL: full */
        const json_t *exec;            /* of exec_rules.h, checked; NULL: none */
        struct cg_strs writable_names; /* of names.h, which may be written */
        /* allowed names may lead into a private network; always so for commands, as in srt */
        bool private_addresses;
};

#define CG_SEARCH_DEPTH 3

struct cg_settings {
        json_t *root; /* owns the texts */
        struct cg_settings_network network;
        struct cg_settings_filesystem filesystem;
        struct cg_settings_creds creds;
        struct cg_settings_ignore *ignores;
        size_t n_ignores;
        bool weaker_nested;
        bool nested_user_namespaces;
        /* mandatoryDenySearchDepth: 1 to 10; CG_SEARCH_DEPTH where they say nothing */
        int search_depth;
        struct cg_strs safe_directories;
        struct cg_settings_own own;
        /*
         * first key that srt would pass over and we do not know, as "network.x"; NULL: none. In
         * text[]
         */
        const char *unknown;
        char text[256];
};

enum {
        /*
         * Keys that we do not know, where srt passes over such, are no error but named in
         * `unknown`: a settings file that srt accepts is accepted. One that is nearly a key we know
         * is an error always: a misspelt rule must not be a rule less.
         */
        CG_SETTINGS_LENIENT = 1,
};

/*
 * Reads settings. @what names the text in messages. CG_E_PARSE: not JSON, or not this schema ("WHAT
 * does not hold a valid config — network.allowedDomains.0: ..."); CG_E_UNSUPPORTED: it asks for
 * what does not exist here, by name. *ret: caller frees.
 */
int cg_settings_parse(const char *text, size_t len, const char *what, int flags, struct cg_settings **ret,
                      struct cg_err *err);
/* The same for JSON that was parsed already. *ret keeps a reference to @o. */
int cg_settings_read(const json_t *o, const char *what, int flags, struct cg_settings **ret,
                     struct cg_err *err);
/* The settings without a settings file: no network, no writes. */
int cg_settings_default(struct cg_settings **ret, struct cg_err *err);
struct cg_settings *cg_settings_free(struct cg_settings *s);

/*
 * network.c: the object "network" of a settings file alone. Texts in *ret are those of @o, which
 * must outlive it. cg_settings_network_fini() frees the rest.
 */
int cg_settings_read_network(const json_t *o, struct cg_settings_network *ret, struct cg_err *err);
void cg_settings_network_fini(struct cg_settings_network *net);

static inline void cg_settings_freep_(struct cg_settings **s)
{
        cg_settings_free(*s);
}
#define cg_auto_settings CG_CLEANUP(cg_settings_freep_)
