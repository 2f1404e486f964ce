/*
 * A command in a sandbox, by settings: for `cellgate sandbox`, also where it replaces `srt`.
 *
 *      cg_command_new()       settings, folders, environment -> plan
 *      cg_command_explain()   plan -> text
 *      cg_command_run()       plan -> processes (keeper.c) -> exit status
 */
#pragma once

#include <signal.h>
#include "base/buf.h"
#include "sandbox/settings/environ.h"
#include "sandbox/egress/mask.h"
#include "sandbox/settings/rules.h"
#include "sandbox/sandbox.h"

struct cg_command {
        struct cg_settings *settings;
        struct cg_path_base base; /* what paths in them are relative to; borrowed */
        json_t *user_env;         /* of base */
        struct cg_rules rules;
        struct cg_environ env;
        struct cg_masks masks;
        struct cg_sandbox *sb;
        char tmp[64];   /* $TMPDIR, unless the caller's environment names another */
        bool fell_back; /* "auto" came to the landlock tier */
        /* it is a folder of the host's, made and removed by the keeper (landlock tier) */
        bool tmp_on_host;
        char *const *host_env;  /* borrowed */
        json_t *policy;         /* of the egress proxy; NULL without one */
        bool proxy;             /* the ports of environ.h are served inside */
        const char *shell_text; /* -c; NULL: argv */
        char *const *argv;      /* NULL-terminated */
        int control_fd;         /* settings as JSON lines, see ask_seconds; -1: none */
        /* control_fd is connected to the host: denials go there, and its end ends the network */
        bool control_socket;
        bool report; /* and cg_command_entries(), as the first line */
        bool debug;
        /*
         * control_fd is a stream socket: questions about hosts on no list go there as JSON lines,
         * answers come from there, within this time; 0: such hosts are refused
         */
        int ask_seconds;
        bool quiet;        /* denials are not reported */
        sigset_t old_mask; /* the caller's, for the command */
};

struct cg_command_options {
        const char *cwd;  /* absolute, without symlinks; these three borrowed for the command's whole life */
        const char *home; /* absolute, or NULL */
        const char *base; /* where relative entries of the settings begin; NULL: cwd */
        /* absolute paths that are hidden whatever the settings say, NULL-terminated; or NULL */
        const char *const *hides;
        /* the file that the settings came from, which the command must not write; or NULL */
        const char *settings;
        char *const *env;
        const char *shell_text; /* one of these two; borrowed for the command's whole life */
        char *const *argv;
        /* as cg_tier_parse() takes it, instead of the settings' own; NULL: theirs */
        const char *tier;
        int control_fd;      /* -1: none */
        bool control_socket; /* as in struct cg_command */
        bool report;         /* as in struct cg_command */
        bool debug;
        bool watch_files; /* as the setting cellgate.watchFiles */
        int ask_seconds;  /* as in struct cg_command */
        /* denials are not reported; the violation log gets them all the same */
        bool quiet;
        bool only_plan; /* it will not be run: no folder is made for it */
};

/* Takes @s, also when it fails. */
int cg_command_new(struct cg_settings *s, const struct cg_command_options *opts, struct cg_command **ret,
                   struct cg_err *err);
struct cg_command *cg_command_free(struct cg_command *c);

/*
 * Runs it and returns its exit status: the command's; 128 + n for signal n; 124 when its time was
 * over; 1 with *err when it could not be run at all. Signals that this process gets are the
 * command's. For a process with one thread, at most once.
 */
int cg_command_run(struct cg_command *c, struct cg_err *err);

/* @policy of the egress proxy (takes; returns) with what does not change while the command runs. */
json_t *cg_command_policy(const struct cg_command *c, json_t *policy);

/*
 * The entries of "filesystem" with what they are here: [{"setting": "filesystem.denyRead.0",
 * "entry": ".env", "path": "/work/.env", "matches": 1}, ...]. "path": the spelling made absolute; "matches":
 * the files and folders that it names. The caller owns it; NULL: out of memory.
 */
json_t *cg_command_entries(const struct cg_command *c);

/* explain.c: the paths that may be read and written, and why: as text, or as one JSON object. */
int cg_command_explain(const struct cg_command *c, bool json, struct cg_buf *out, struct cg_err *err);
