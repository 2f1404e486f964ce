/*
 * The schema: one table for each object of a settings file, then the rules that tie settings to
 * each other. Where a message has a counterpart in srt it is srt's.
 */
#include "sandbox/settings/settings.h"

#include "base/json.h"
#include "base/ceilings.h"
#include "sandbox/settings/environ.h"
#include "sandbox/settings/exec_rules.h"
#include "sandbox/settings/extract.h"
#include "sandbox/settings/read.h"

static const char *no_sigv4(const char *unused)
{
        return "signing AWS requests anew is not supported";
}

/* ---- filesystem */

static const struct cg_field filesystem_fields[] = {
        CG_FIELD_TO(cg_settings_filesystem, disabled, "disabled", cg_reader_bool),
        CG_FIELD_TO(cg_settings_filesystem, deny_read, "denyRead", cg_reader_paths, .required = true),
        CG_FIELD_TO(cg_settings_filesystem, allow_read, "allowRead", cg_reader_paths),
        CG_FIELD_TO(cg_settings_filesystem, allow_write, "allowWrite", cg_reader_paths, .required = true),
        CG_FIELD_TO(cg_settings_filesystem, deny_write, "denyWrite", cg_reader_paths, .required = true),
        CG_FIELD_TO(cg_settings_filesystem, allow_git_config, "allowGitConfig", cg_reader_bool),
};

/* A pattern that ends in "/" matches nothing, and a deny that matches nothing is a hole. */
static int check_slashed_glob(struct cg_reader *r, const char *path)
{
        size_t n = strlen(path);

        if (n < 2 || path[n - 1] != '/' || !strpbrk(path, "*?[") || (path[0] != '/' && path[0] != '~'))
                return 0;
        return cg_reader_fail(
                r,
                "Deny glob \"%s\" ends in a separator, so as a pattern it can match no path. Write it without, "
                "or add a \"**\" segment to match at any depth.",
                path);
}

static int check_deny_list(struct cg_reader *r, const char *name, const struct cg_path_list *list)
{
        size_t mark = cg_reader_enter(r, "filesystem"), inner = cg_reader_enter(r, name);
        int status = 0;

        for (size_t i = 0; i < list->n && status == 0; i++) {
                size_t at = cg_reader_enter_index(r, i);

                if (!list->v[i].literal)
                        status = check_slashed_glob(r, list->v[i].path);
                cg_reader_leave(r, at);
        }
        cg_reader_leave(r, inner);
        cg_reader_leave(r, mark);
        return status;
}

/* ---- credentials */

static int read_mode(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        const char *s = json_string_value(v) ?: "";

        if (strcmp(s, "deny") != 0 && strcmp(s, "mask") != 0)
                return cg_reader_fail(r, "Invalid enum value. Expected 'deny' | 'mask'");
        *(enum cg_cred_mode *)to = s[0] == 'm' ? CG_CRED_MASK : CG_CRED_DENY;
        return 0;
}

static int read_no_match(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        static const char *const names[] = { [CG_CRED_NO_MATCH_WARN] = "warn",
                                             [CG_CRED_NO_MATCH_DENY] = "deny",
                                             [CG_CRED_NO_MATCH_ERROR] = "error" };
        const char *s = json_string_value(v) ?: "";

        for (size_t i = 0; i < CG_ARRAY_LEN(names); i++) {
                if (strcmp(s, names[i]) != 0)
                        continue;
                *(enum cg_cred_no_match *)to = (enum cg_cred_no_match)i;
                return 0;
        }
        return cg_reader_fail(r, "Invalid enum value. Expected 'warn' | 'deny' | 'error'");
}

static int read_extract(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        cg_auto_extract struct cg_extract *x = NULL;
        struct cg_err err;
        int status = cg_reader_str(r, v, f, to);

        if (status < 0)
                return status;
        if (cg_extract_new(*(const char **)to, &x, &err) < 0)
                return cg_reader_fail(r, "%s", err.msg);
        return 0;
}

static int read_decode(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        if (!json_is_string(v) || strcmp(json_string_value(v), "jwt") != 0)
                return cg_reader_fail(r, "Invalid enum value. Expected 'jwt'");
        *(bool *)to = true;
        return 0;
}

static int read_claims(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        int status = cg_reader_ignored_strs(r, v, f, NULL);

        if (status < 0)
                return status;
        if (!json_array_size(v))
                return cg_reader_fail(
                        r,
                        "maskClaims is explicitly empty — no claim would ever be masked. Omit maskClaims to mask the "
                        "whole token, or list the claims to protect.");
        *(bool *)to = true;
        return 0;
}

static int read_hosts(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        struct cg_settings_cred *cred = (void *)((char *)to - f->offset);

        cred->has_hosts = true;
        return cg_reader_strs(r, v, f, to);
}

static int read_cred(struct cg_reader *r, const json_t *v, const struct cg_field *fields, size_t n, void *to)
{
        struct cg_settings_cred *cred = to;
        int status = cg_reader_object(r, v, fields, n, CG_UNKNOWN_AS_SRT, cred);

        if (status == 0 && cred->claims && !cred->decode)
                return cg_reader_fail(
                        r,
                        "maskClaims requires decode — it names claims inside the decoded payload. Set decode (e.g. "
                        "\"jwt\"), or remove maskClaims to mask the whole value.");
        /* With mode "deny" it has no effect, as in srt. */
        if (status == 0 && cred->decode && cred->mode == CG_CRED_MASK) {
                cg_reader_enter(r, "decode");
                return cg_reader_unsupported(
                        r, "masking inside JSON Web Tokens is not supported: mask the whole value, or a part "
                           "with \"extract\"");
        }
        if (status == 0 && cred->mode == CG_CRED_MASK && cred->has_hosts && cred->inject_hosts.n == 0)
                return cg_reader_fail(
                        r,
                        "injectHosts is explicitly empty — the credential would be masked but never injected. "
                        "Omit injectHosts to default to network.allowedDomains, or list the intended hosts.");
        return status;
}

#define CRED_FIELDS \
        CG_FIELD_TO(cg_settings_cred, mode, "mode", read_mode, .required = true), \
                CG_FIELD_TO(cg_settings_cred, extract, "extract", read_extract), \
                CG_FIELD_TO(cg_settings_cred, no_match, "onExtractNoMatch", read_no_match), \
                CG_FIELD_TO(cg_settings_cred, decode, "decode", read_decode), \
                CG_FIELD_TO(cg_settings_cred, claims, "maskClaims", read_claims, .min = 1), \
                CG_FIELD_TO(cg_settings_cred, inject_hosts, "injectHosts", read_hosts, \
                            .check = cg_check_domain)

static int read_file(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        static const struct cg_field fields[] = {
                CG_FIELD_TO(cg_settings_cred, what, "path", cg_reader_str, .required = true),
                CG_FIELD_TO(cg_settings_cred, mask_duplicates, "maskDuplicates", cg_reader_bool),
                CRED_FIELDS,
        };
        struct cg_settings_cred *cred = to;
        int status = read_cred(r, v, fields, CG_ARRAY_LEN(fields), to);

        if (status < 0)
                return status;
        if (cred->mode == CG_CRED_MASK && cred->what[strlen(cred->what) - 1] == '/')
                return cg_reader_fail(
                        r,
                        "Credential mode \"mask\" applies to a single file, not a directory. Use mode \"deny\" for "
                        "\"%s\", or point at the credential file inside it.",
                        cred->what);
        return cred->mode == CG_CRED_DENY ? check_slashed_glob(r, cred->what) : 0;
}

static int read_var(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        static const struct cg_field fields[] = {
                CG_FIELD_TO(cg_settings_cred, what, "name", cg_reader_str, .required = true,
                            .check = cg_check_variable),
                CRED_FIELDS,
        };

        return read_cred(r, v, fields, CG_ARRAY_LEN(fields), to);
}

static int read_files(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        struct cg_settings_creds *c = &r->settings->creds;
        void *items = NULL;
        int status = cg_reader_list(r, v, f, read_file, sizeof(*c->files), &items, &c->n_files);

        c->files = items;
        return status;
}

static int read_vars(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        struct cg_settings_creds *c = &r->settings->creds;
        void *items = NULL;
        int status = cg_reader_list(r, v, f, read_var, sizeof(*c->vars), &items, &c->n_vars);

        c->vars = items;
        return status;
}

static const struct cg_field creds_fields[] = {
        CG_FIELD("files", read_files),
        CG_FIELD("envVars", read_vars),
        CG_FIELD_TO(cg_settings_creds, plaintext_inject, "allowPlaintextInject", cg_reader_bool),
        CG_FIELD("awsPairs", cg_reader_refused, .check = no_sigv4),
        CG_FIELD("sigv4", cg_reader_refused, .check = no_sigv4),
};

static int check_hosts(struct cg_reader *r, const char *list, size_t i, const struct cg_settings_cred *cred)
{
        const struct cg_strs *allowed = &r->settings->network.allowed;

        for (size_t k = 0; k < cred->inject_hosts.n; k++) {
                if (cg_domain_covered(cred->inject_hosts.v[k], allowed))
                        continue;
                cg_reader_enter(r, "credentials");
                cg_reader_enter(r, list);
                cg_reader_enter_index(r, i);
                cg_reader_enter(r, "injectHosts");
                cg_reader_enter_index(r, k);
                return cg_reader_fail(
                        r,
                        "injectHosts entry \"%s\" is not reachable via network.allowedDomains — add \"%s\" (or a "
                        "covering wildcard) to allowedDomains, or remove it from injectHosts.",
                        cred->inject_hosts.v[k], cred->inject_hosts.v[k]);
        }
        return 0;
}

static int check_creds(struct cg_reader *r)
{
        const struct cg_settings_creds *c = &r->settings->creds;
        bool masked = false;

        for (size_t i = 0; i < c->n_vars; i++) {
                masked |= c->vars[i].mode == CG_CRED_MASK;
                if (check_hosts(r, "envVars", i, &c->vars[i]) < 0)
                        return CG_E_PARSE;
        }
        for (size_t i = 0; i < c->n_files; i++) {
                masked |= c->files[i].mode == CG_CRED_MASK;
                if (check_hosts(r, "files", i, &c->files[i]) < 0)
                        return CG_E_PARSE;
        }
        if (!masked || c->plaintext_inject)
                return 0;
        cg_reader_enter(r, "credentials");
        return cg_reader_fail(
                r,
                "Credential masking requires network.tlsTerminate so substitution runs only over a verified TLS "
                "connection, and TLS termination is not supported here. Use mode \"deny\", or set "
                "credentials.allowPlaintextInject to opt out (not recommended).");
}

/* ---- the rest */

static int read_ignores(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        static const struct cg_field texts = CG_FIELD_TO(cg_settings_ignore, texts, "texts", cg_reader_strs);
        struct cg_settings *s = r->settings;
        void *items = NULL;
        int status = cg_reader_members(r, v, &texts, sizeof(*s->ignores), &items, &s->n_ignores);

        s->ignores = items;
        return status;
}

static const struct cg_field git_fields[] = {
        CG_FIELD_TO(cg_settings, safe_directories, "safeDirectories", cg_reader_strs),
};

/* Programs that srt runs and we do not need; checked, then passed over. */
static const struct cg_field ripgrep_fields[] = {
        CG_FIELD("command", cg_reader_ignored_str, .required = true),
        CG_FIELD("args", cg_reader_ignored_strs),
        CG_FIELD("argv0", cg_reader_ignored_str),
};

static const struct cg_field seccomp_fields[] = {
        CG_FIELD("applyPath", cg_reader_ignored_str),
        CG_FIELD("argv0", cg_reader_ignored_str),
};

static const struct cg_field limits_fields[] = {
#define X(id, field, scale, name, setting, unit, words) CG_FIELD(setting, cg_reader_limit),
        CG_LIMITS_TABLE(X)
#undef X
};

static int read_env(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        r->settings->own.has_env = true;
        return cg_reader_strs(r, v, f, to);
}

/* 8000, or {"inside": 8000, "host": 9000} */
static int read_port(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        static const struct cg_field fields[] = {
                { .key = "inside",
                  .read = cg_reader_int,
                  .offset = 0,
                  .required = true,
                  .min = 1,
                  .max = 65535 },
                { .key = "host",
                  .read = cg_reader_int,
                  .offset = sizeof(int),
                  .required = true,
                  .min = 1,
                  .max = 65535 },
        };
        struct cg_settings_port *port = to;
        int n[2] = { 0, 0 }, status;

        if (json_is_object(v))
                status = cg_reader_object(r, v, fields, CG_ARRAY_LEN(fields), CG_UNKNOWN_IS_ERROR, n);
        else if ((status = cg_reader_int(r, v, &fields[0], &n[0])) == 0)
                n[1] = n[0];
        if (status == 0)
                *port = (struct cg_settings_port){ (uint16_t)n[0], (uint16_t)n[1] };
        return status;
}

/* Ports that are listened at: on the host for "expose", inside for "reach". */
static int read_ports_list(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        bool expose = strcmp(f->key, "expose") == 0;
        struct cg_settings_own *own = to;
        struct cg_settings_port *ports;
        void *items = NULL;
        size_t n = 0;
        int status = cg_reader_list(r, v, f, read_port, sizeof(*ports), &items, &n);

        ports = items;
        if (status == 0 && n > CG_SETTINGS_PORTS_MAX)
                status = cg_reader_fail(r, "more than %d ports", CG_SETTINGS_PORTS_MAX);
        for (size_t i = 0; i < n && status == 0; i++) {
                size_t mark = cg_reader_enter_index(r, i), k = 0;
                uint16_t port = expose ? ports[i].host : ports[i].inside;

                while (k < i && (expose ? ports[k].host : ports[k].inside) != port)
                        k++;
                if (k < i)
                        status = cg_reader_fail(r, "port %u %s is listed twice", port,
                                                expose ? "of this machine" : "inside");
                else if (!expose && (port == CG_PROXY_HTTP_PORT || port == CG_PROXY_SOCKS_PORT))
                        status = cg_reader_fail(r, "port %u inside is the proxy's", port);
                cg_reader_leave(r, mark);
        }
        if (status == 0 && n)
                memcpy(expose ? own->expose : own->reach, ports, n * sizeof(*ports));
        if (status == 0)
                *(expose ? &own->n_expose : &own->n_reach) = n;
        free(items);
        return status;
}

static int read_hide(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        r->settings->own.has_hide_credentials = true;
        return cg_reader_bool(r, v, f, to);
}

static int read_exec(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        enum cg_exec exec;
        struct cg_err err;

        if (cg_exec_rules_mode(v, &exec, &err) < 0)
                return cg_reader_fail(r, "%s", err.msg);
        *(const json_t **)to = v;
        return 0;
}

static const struct cg_field ports_fields[] = {
        CG_FIELD("expose", read_ports_list),
        CG_FIELD("reach", read_ports_list),
};

static const struct cg_field own_fields[] = {
        CG_FIELD_TO(cg_settings_own, network_off, "networkOff", cg_reader_bool),
        CG_FIELD_TO(cg_settings_own, limits, "limits", cg_reader_table,
                    CG_FIELDS(limits_fields, CG_UNKNOWN_IS_ERROR)),
        CG_FIELD("ports", cg_reader_table, CG_FIELDS(ports_fields, CG_UNKNOWN_IS_ERROR)),
        CG_FIELD_TO(cg_settings_own, env, "env", read_env, .min = 1),
        CG_FIELD_TO(cg_settings_own, violation_log, "violationLog", cg_reader_str,
                    .check = cg_check_absolute),
        CG_FIELD_TO(cg_settings_own, watch_files, "watchFiles", cg_reader_bool),
        CG_FIELD_TO(cg_settings_own, hide_credentials, "hideCredentials", read_hide),
        CG_FIELD_TO(cg_settings_own, tier, "tier", cg_reader_str, .check = cg_check_tier),
        CG_FIELD_TO(cg_settings_own, exec, "exec", read_exec),
        CG_FIELD_TO(cg_settings_own, writable_names, "writableNames", cg_reader_strs, .check = cg_check_name),
        CG_FIELD_TO(cg_settings_own, private_addresses, "privateAddresses", cg_reader_bool),
};

static const struct cg_field top[] = {
        CG_FIELD_TO(cg_settings, network, "network", cg_reader_network, .required = true),
        CG_FIELD_TO(cg_settings, filesystem, "filesystem", cg_reader_table,
                    CG_FIELDS(filesystem_fields, CG_UNKNOWN_AS_SRT), .required = true),
        CG_FIELD_TO(cg_settings, creds, "credentials", cg_reader_table,
                    CG_FIELDS(creds_fields, CG_UNKNOWN_IS_ERROR)),
        CG_FIELD("ignoreViolations", read_ignores),
        CG_FIELD_TO(cg_settings, weaker_nested, "enableWeakerNestedSandbox", cg_reader_bool),
        CG_FIELD_TO(cg_settings, nested_user_namespaces, "allowNestedUserNamespaces", cg_reader_bool),
        CG_FIELD_TO(cg_settings, search_depth, "mandatoryDenySearchDepth", cg_reader_int, .min = 1,
                    .max = 10),
        CG_FIELD("git", cg_reader_table, CG_FIELDS(git_fields, CG_UNKNOWN_AS_SRT)),
        CG_FIELD("ripgrep", cg_reader_table, CG_FIELDS(ripgrep_fields, CG_UNKNOWN_AS_SRT)),
        CG_FIELD("seccomp", cg_reader_table, CG_FIELDS(seccomp_fields, CG_UNKNOWN_AS_SRT)),
        CG_FIELD("bwrapPath", cg_reader_ignored_str, .check = cg_check_absolute),
        CG_FIELD("socatPath", cg_reader_ignored_str, .check = cg_check_absolute),
        CG_FIELD("javaAgentJarPath", cg_reader_ignored_str, .check = cg_check_absolute),
        /* of other systems */
        CG_FIELD("enableWeakerNetworkIsolation", cg_reader_ignored_bool),
        CG_FIELD("allowAppleEvents", cg_reader_ignored_bool),
        CG_FIELD("allowPty", cg_reader_ignored_bool),
        CG_FIELD("windows", cg_reader_ignored_object),
        /* ours */
        CG_FIELD_TO(cg_settings, own, "cellgate", cg_reader_table,
                    CG_FIELDS(own_fields, CG_UNKNOWN_IS_ERROR)),
};

/* Takes @root, an object. */
static int read_all(json_t *root, const char *what, int flags, struct cg_settings **ret, struct cg_err *err)
{
        cg_auto_settings struct cg_settings *s = calloc(1, sizeof(*s));
        struct cg_reader r = { .settings = s, .what = what, .flags = flags, .err = err };
        int status;

        if (!s) {
                json_decref(root);
                return cg_fail(err, CG_E_NOMEM, "settings");
        }
        s->root = root;
        s->search_depth = CG_SEARCH_DEPTH;
        status = cg_reader_object(&r, root, top, CG_ARRAY_LEN(top), CG_UNKNOWN_AS_SRT, s);
        if (status == 0 && !s->filesystem.disabled)
                status = check_deny_list(&r, "denyRead", &s->filesystem.deny_read);
        if (status == 0 && !s->filesystem.disabled)
                status = check_deny_list(&r, "denyWrite", &s->filesystem.deny_write);
        if (status == 0)
                status = check_creds(&r);
        if (status == 0)
                *ret = CG_STEAL(s);
        return status;
}

int cg_settings_parse(const char *text, size_t len, const char *what, int flags, struct cg_settings **ret,
                      struct cg_err *err)
{
        json_t *root;
        int status;

        if (len > CG_MAX_SETTINGS)
                return cg_fail(err, CG_E_LIMIT, "%s is larger than %u bytes", what, CG_MAX_SETTINGS);
        status = cg_json_object(text, len, what, &root, err);
        return status == 0 ? read_all(root, what, flags, ret, err) : status;
}

int cg_settings_read(const json_t *o, const char *what, int flags, struct cg_settings **ret,
                     struct cg_err *err)
{
        if (json_dumpb(o, NULL, 0, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_ENCODE_ANY) > CG_MAX_SETTINGS)
                return cg_fail(err, CG_E_LIMIT, "%s is larger than %u bytes", what, CG_MAX_SETTINGS);
        if (!json_is_object(o))
                return cg_fail(err, CG_E_PARSE, "%s must be a JSON object", what);
        return read_all(json_incref(cg_json_unconst(o)), what, flags, ret, err);
}

int cg_settings_default(struct cg_settings **ret, struct cg_err *err)
{
        static const char text[] =
                "{\"network\":{\"allowedDomains\":[],\"deniedDomains\":[]},"
                "\"filesystem\":{\"denyRead\":[],\"allowRead\":[],\"allowWrite\":[],\"denyWrite\":[]}}";

        return cg_settings_parse(text, sizeof(text) - 1, "the built-in defaults", 0, ret, err);
}

static void free_creds(struct cg_settings_cred *list, size_t n)
{
        for (size_t i = 0; list && i < n; i++)
                free(list[i].inject_hosts.v);
        free(list);
}

struct cg_settings *cg_settings_free(struct cg_settings *s)
{
        if (!s)
                return NULL;
        cg_settings_network_fini(&s->network);
        free(s->filesystem.deny_read.v);
        free(s->filesystem.allow_read.v);
        free(s->filesystem.allow_write.v);
        free(s->filesystem.deny_write.v);
        free_creds(s->creds.files, s->creds.n_files);
        free_creds(s->creds.vars, s->creds.n_vars);
        for (size_t i = 0; i < s->n_ignores; i++)
                free(s->ignores[i].texts.v);
        free(s->ignores);
        free(s->safe_directories.v);
        free(s->own.env.v);
        free(s->own.writable_names.v);
        json_decref(s->root);
        free(s);
        return NULL;
}
