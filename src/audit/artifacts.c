/*
 * `cellgate artifacts` and `cellgate verify`: manifests of the files of cells, which the audit log
 * has (log.h), and whether files still are what was signed. Run in cellgate-audit, outside of any
 * sandbox: names and files that cells made are hostile. No link in them is followed.
 */
#include <linux/openat2.h>
#include <nettle/sha2.h>
#include <sys/syscall.h>
#include "audit/log.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/path.h"
#include "base/sha256_hex.h"
#include "base/state_dir.h"
#include "base/text.h"
#include "cli/common/cli.h"
#include "cli/common/opts.h"
#include "cli/help.h"
#include "cli/option_tables.h"

#define READ_BYTES   (256u << 10)
#define MAX_MANIFEST ((size_t)8 << 20)

enum { ARTIFACTS = 1, VERIFY = 2 };
enum { CG_ARTIFACTS_OPTION_IDS };

static const struct cg_opt table[] = { CG_ARTIFACTS_OPTION_ROWS };

struct signed_options {
        unsigned command;
        const char *words[2], *out, *key_file;
        const char *key; /* hexadecimal digits; NULL: that of the log */
        bool json;
};

struct manifest_search {
        const struct signed_options *options;
        const char *sha256; /* of verify; NULL: artifacts */
        uint8_t key[CG_AUDIT_KEY];
        json_t *manifest; /* the last that matches; NULL: none */
        char *text;
        int64_t unsigned_seq; /* a record whose signature is wrong; 0: none */
};

/* ------------------------------------------------------------------ manifests */

static const char *shown_path(const json_t *file)
{
        const char *path = cg_json_text_of(file, "path"), *redacted = cg_json_text_of(file, "path_redacted");

        if (*redacted)
                return redacted;
        return cg_text_or(path, cg_json_text_of(file, "path_hex"));
}

/* The entry with this digest; NULL: none. */
static const json_t *entry_of(const json_t *manifest, const char *sha256)
{
        const json_t *file;
        size_t i;

        json_array_foreach(json_object_get(manifest, "files"), i, file) {
                if (strcmp(cg_json_text_of(file, "sha256"), sha256) == 0)
                        return file;
        }
        return NULL;
}

/* "3f2a/4" is the 4th cell of the session whose id begins with 3f2a. */
static bool is_execution(const char *execution, const char *wanted)
{
        const char *cell = strchr(wanted, '/'), *its = strchr(execution, '/');

        return cell && its && strncmp(execution, wanted, (size_t)(cell - wanted)) == 0 &&
               strcmp(cell, its) == 0;
}

/* Adds untrusted text without what a terminal obeys. */
static void add_safe(struct cg_buf *b, const char *text)
{
        cg_text_render_as(b, text, strlen(text), SIZE_MAX, CG_TEXT_LINE);
}

static int print_line(const struct cg_buf *b, struct cg_err *err)
{
        if (cg_buf_end(b, err) < 0)
                return -1;
        puts(cg_buf_str(b));
        return 0;
}

static int on_record(void *data, const struct cg_audit_record *r, struct cg_err *err)
{
        struct manifest_search *f = data;
        cg_auto_json json_t *o = NULL;
        const json_t *files;
        char when[32];

        if (strcmp(r->kind, CG_AUDIT_MANIFEST) != 0)
                return 0;
        if (!cg_audit_manifest_signed(r->body, r->body_len, f->key)) {
                f->unsigned_seq = r->seq;
                return 0;
        }
        if (cg_json_object(r->body, r->body_len, "manifest", &o, err) < 0)
                return -1;
        files = json_object_get(o, "files");
        if (!f->sha256 && !f->options->words[0]) {
                if (json_array_size(files)) {
                        cg_audit_time_text(json_integer_value(json_object_get(o, "time")), when);
                        printf("%s  %s  %zu file%s\n", when, cg_json_text_of(o, "execution"),
                               json_array_size(files), cg_cli_s((long long)json_array_size(files)));
                }
                return 0;
        }
        if (f->sha256 ? !entry_of(o, f->sha256)
                      : !is_execution(cg_json_text_of(o, "execution"), f->options->words[0]))
                return 0;
        if (!f->sha256 && f->manifest &&
            strcmp(cg_json_text_of(f->manifest, "execution"), cg_json_text_of(o, "execution")) != 0)
                return cg_fail(err, CG_E_INVAL, "%s is the beginning of more than one session's id",
                               f->options->words[0]);
        json_decref(f->manifest);
        free(f->text);
        f->manifest = json_incref(o);
        f->text = strndup(r->body, r->body_len);
        return cg_made(f->text, "manifest", err);
}

static int open_log(const struct signed_options *o, struct cg_audit_log **ret, struct cg_err *err)
{
        char dir[PATH_MAX];

        if (cg_state_folder("audit", dir, err) < 0)
                return -1;
        return cg_audit_open(dir, o->key_file, false, ret, err);
}

/* The key of --key, or else of the log. */
static int read_key(const struct signed_options *o, uint8_t key[CG_AUDIT_KEY], struct cg_err *err)
{
        struct cg_audit_log *log;

        if (o->key && cg_audit_unhex(o->key, key, CG_AUDIT_KEY))
                return 0;
        if (o->key)
                return cg_fail(err, CG_E_INVAL, "--key %s: 64 hexadecimal digits", o->key);
        if (open_log(o, &log, err) < 0)
                return -1;
        memcpy(key, cg_audit_public_key(log), CG_AUDIT_KEY);
        cg_audit_close(log);
        return 0;
}

static int search_log(struct manifest_search *f, struct cg_err *err)
{
        struct cg_audit_log *log;
        int r = open_log(f->options, &log, err);

        if (r < 0)
                return r;
        memcpy(f->key, cg_audit_public_key(log), CG_AUDIT_KEY);
        r = cg_audit_read(log, 0, on_record, f, err);
        cg_audit_close(log);
        if (r == 0 && f->unsigned_seq && !f->manifest)
                r = cg_fail(err, CG_E_STATE,
                            "record %" PRId64 " of the audit log has a signature that its key did not make",
                            f->unsigned_seq);
        return r;
}

/* ------------------------------------------------------------------ files */

/* Reads @from to its end, or more than @max bytes, and writes that to @to (-1: nowhere). */
static int hash_fd(int from, int to, int64_t max, char digits[CG_SHA256_HEX], struct cg_err *err)
{
        cg_auto_free char *data = malloc(READ_BYTES);
        uint8_t sum[SHA256_DIGEST_SIZE];
        struct sha256_ctx c;
        ssize_t n = 1;

        if (!data)
                return cg_fail(err, CG_E_NOMEM, "file");
        sha256_init(&c);
        while (max >= 0 && (n = read(from, data, READ_BYTES)) != 0) {
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return cg_fail_errno(err, "read");
                max -= n;
                sha256_update(&c, (size_t)n, (const uint8_t *)data);
                if (to >= 0 && cg_write_all(to, data, (size_t)n, err) < 0)
                        return -1;
        }
        sha256_digest(&c, sizeof(sum), sum);
        cg_hex(digits, sum, sizeof(sum));
        return 0;
}

/* The descriptor of a regular file, or negative. @resolve: flags of openat2(2). */
static int open_regular(const char *path, uint64_t resolve, struct cg_err *err)
{
        struct open_how how = { .flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, .resolve = resolve };
        cg_auto_fd int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));
        struct stat st;

        if (fd < 0 || fstat(fd, &st) < 0)
                return cg_fail_errno(err, "%s", path);
        if (!S_ISREG(st.st_mode))
                return cg_fail(err, CG_E_INVAL, "%s is no regular file", path);
        return cg_steal_fd(&fd);
}

/* The folder of @name, a path below @dir, which is made; *base: its last part. */
static int open_parent(int dir, char *name, const char **base, struct cg_err *err)
{
        cg_auto_fd int fd = fcntl(dir, F_DUPFD_CLOEXEC, 0);
        char *part = name, *slash;

        while (fd >= 0 && (slash = strchr(part, '/'))) {
                int next;

                *slash = '\0';
                if (!*part || cg_path_is_dots(part))
                        return cg_fail(err, CG_E_INVAL, "its path is not as cells' files are named");
                mkdirat(fd, part, 0777);
                next = openat(fd, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                cg_closep_(&fd);
                fd = next;
                part = slash + 1;
        }
        if (fd < 0)
                return cg_fail_errno(err, "folder of the copy");
        if (!*part || cg_path_is_dots(part))
                return cg_fail(err, CG_E_INVAL, "its path is not as cells' files are named");
        *base = part;
        return cg_steal_fd(&fd);
}

/*
 * Copies @path, of the entry @file, to @name below @dir if its content is what was signed. The copy
 * has no name before that is known.
 */
static int copy_file(const char *path, char *name, int dir, const json_t *file, struct cg_err *err)
{
        char digits[CG_SHA256_HEX], link[48];
        cg_auto_fd int from = -1, parent = -1, to = -1;
        const char *base;

        from = open_regular(path, RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS, err);
        if (from < 0)
                return -1;
        parent = open_parent(dir, name, &base, err);
        if (parent < 0)
                return -1;
        to = openat(parent, ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
        if (to < 0)
                return cg_fail_errno(err, "copy");
        if (hash_fd(from, to, json_integer_value(json_object_get(file, "size")), digits, err) < 0)
                return -1;
        if (strcmp(digits, cg_json_text_of(file, "sha256")) != 0)
                return cg_fail(err, CG_E_STATE, "it is not what was signed any more");
        snprintf(link, sizeof(link), "/proc/self/fd/%d", to);
        if (linkat(AT_FDCWD, link, parent, base, AT_SYMLINK_FOLLOW) == 0)
                return 0;
        if (errno == EEXIST)
                return cg_fail(err, CG_E_STATE, "there is a file of its name already, which is not replaced");
        return cg_fail_errno(err, "copy");
}

/* The path of an entry, which need not be UTF-8 (returns); NULL: it has none. */
static char *entry_path(const json_t *file)
{
        const char *hex = cg_json_text_of(file, "path_hex");
        size_t n = strlen(hex) / 2;
        char *path;

        if (!n)
                return strdup(cg_json_text_of(file, "path"));
        path = calloc(1, n + 1);
        if (path && cg_audit_unhex(hex, (uint8_t *)path, n))
                return path;
        free(path);
        return NULL;
}

static int copy_entry(const json_t *manifest, const json_t *file, int dir, struct cg_err *err)
{
        const char *workspace = cg_json_text_of(manifest, "workspace");
        size_t skipped = 1; /* the slash */
        cg_auto_free char *path = entry_path(file), *name = NULL;

        if (*cg_json_text_of(file, "path_redacted"))
                return cg_fail(err, CG_E_STATE, "its name has a secret in it, which is not recorded");
        if (!path || path[0] != '/')
                return cg_fail(err, CG_E_INVAL, "it has no absolute path");
        if (!*cg_json_text_of(file, "sha256"))
                return cg_fail(err, CG_E_STATE, "it was too large to be signed");
        if (workspace[0] && workspace[1] && path[strnlen(path, strlen(workspace))] == '/' &&
            cg_path_within(path, workspace))
                skipped += strlen(workspace);
        if (cg_asprintf(&name, "copy", err, "%s", path + skipped) < 0)
                return -1;
        return copy_file(path, name, dir, file, err);
}

/* ------------------------------------------------------------------ the commands */

static int open_folder(int at, const char *path)
{
        struct open_how how = { .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
                                .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS };

        return (int)syscall(SYS_openat2, at, path, &how, sizeof(how));
}

/* The folder @out, which is made. No part of it is a link, since cells may have made that. */
static int open_out(const char *out, struct cg_err *err)
{
        cg_auto_free char *path = strdup(out);
        cg_auto_fd int parent = -1, dir = -1;
        char *base;
        size_t len;

        for (len = path ? strlen(path) : 0; len > 1 && path[len - 1] == '/'; len--)
                path[len - 1] = '\0';
        if (!len)
                return cg_fail(err, path ? CG_E_INVAL : CG_E_NOMEM, "--out needs a folder");
        base = strrchr(path, '/');
        if (base)
                *base++ = '\0';
        parent = open_folder(AT_FDCWD, !base ? "." : *path ? path : "/");
        base = base ?: path;
        if (parent >= 0 && *base && (mkdirat(parent, base, 0777) == 0 || errno == EEXIST))
                dir = open_folder(parent, base);
        if (dir < 0 && errno == ELOOP)
                return cg_fail(
                        err, CG_E_INVAL,
                        "--out %s: a part of it is a link, which a cell may have made: name the folder itself",
                        out);
        if (dir < 0)
                return cg_fail_errno(err, "--out %s", out);
        return cg_steal_fd(&dir);
}

/* CG_E_STATE: not all files could be copied. */
static int copy_all(const json_t *manifest, const char *out, struct cg_err *err)
{
        const json_t *files = json_object_get(manifest, "files"), *file;
        cg_auto_buf struct cg_buf b = { .max = 1 << 20 };
        cg_auto_fd int dir = -1;
        size_t i, n = 0;

        dir = open_out(out, err);
        if (dir < 0)
                return -1;
        json_array_foreach(files, i, file) {
                struct cg_err why, told;

                if (copy_entry(manifest, file, dir, &why) == 0) {
                        n++;
                        continue;
                }
                cg_fail(&told, CG_E_STATE, "%s: %s", shown_path(file), why.msg);
                cg_cli_fail("artifacts", &told);
        }
        cg_buf_addf(&b, "%zu of %zu files, as they were signed, in ", n, i);
        add_safe(&b, out);
        if (print_line(&b, err) < 0)
                return -1;
        if (n != i)
                return cg_fail(err, CG_E_STATE, "%zu of %zu files were not copied", i - n, i);
        return 0;
}

static int list(const json_t *manifest, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = 64 << 20 };
        const char *truncated = cg_json_text_of(manifest, "truncated");
        const json_t *file;
        size_t i;

        json_array_foreach(json_object_get(manifest, "files"), i, file) {
                cg_buf_addf(&b, "%s%-64s %12lld  ", cg_sep(i, "\n"),
                            cg_text_or(cg_json_text_of(file, "sha256"), "(too large to be signed)"),
                            (long long)json_integer_value(json_object_get(file, "size")));
                add_safe(&b, shown_path(file));
        }
        if (*truncated) {
                cg_buf_addf(&b, "%sFiles may be missing: ", cg_sep(i, "\n"));
                add_safe(&b, truncated);
        }
        return i || *truncated ? print_line(&b, err) : 0;
}

static int artifacts(const struct signed_options *o, struct manifest_search *f, struct cg_err *err)
{
        if (search_log(f, err) < 0)
                return -1;
        if (!o->words[0])
                return 0;
        if (!f->manifest)
                return cg_fail(err, CG_E_NOTFOUND, "no signed execution %s: cellgate artifacts lists them",
                               o->words[0]);
        if (o->json)
                return puts(f->text) < 0 ? -1 : 0;
        return o->out ? copy_all(f->manifest, o->out, err) : list(f->manifest, err);
}

static int read_manifest(const struct signed_options *o, struct manifest_search *f, struct cg_err *err)
{
        cg_auto_free char *text = NULL;
        size_t len;

        if (cg_read_regular(o->words[1], MAX_MANIFEST, &text, &len, err) < 0 || read_key(o, f->key, err) < 0)
                return -1;
        while (len && text[len - 1] && strchr("\r\n ", text[len - 1]))
                text[--len] = '\0';
        if (!cg_audit_manifest_signed(text, len, f->key))
                return cg_fail(err, CG_E_STATE,
                               "%s is no manifest that was signed with this key, or was changed since",
                               o->words[1]);
        return cg_json_object(text, len, o->words[1], &f->manifest, err);
}

static int say_signed(const char *path, const struct manifest_search *f, struct cg_err *err)
{
        const json_t *file = entry_of(f->manifest, f->sha256);
        cg_auto_buf struct cg_buf b = { .max = 1 << 20 };
        char when[32];

        if (!file)
                return cg_fail(err, CG_E_STATE, "%s is none of the files of %s: its SHA-256 is %s", path,
                               f->options->words[1], f->sha256);
        cg_audit_time_text(json_integer_value(json_object_get(f->manifest, "time")), when);
        add_safe(&b, path);
        cg_buf_adds(&b, " is ");
        add_safe(&b, shown_path(file));
        cg_buf_addf(&b, " of the execution %s, signed at %s; SHA-256 %s",
                    cg_json_text_of(f->manifest, "execution"), when, f->sha256);
        return print_line(&b, err);
}

static int verify(const struct signed_options *o, struct manifest_search *f, struct cg_err *err)
{
        const char *path = o->words[0], *with = o->words[1];
        uint8_t wanted[SHA256_DIGEST_SIZE];
        char digits[CG_SHA256_HEX], lower[CG_SHA256_HEX];
        cg_auto_buf struct cg_buf b = { .max = 1 << 20 };
        cg_auto_fd int fd = -1;

        if (!path)
                return cg_fail(err, CG_E_INVAL, "which file? --help shows how");
        fd = open_regular(path, 0, err);
        if (fd < 0 || hash_fd(fd, -1, INT64_MAX, digits, err) < 0)
                return -1;
        f->sha256 = digits;
        if (with && cg_audit_unhex(with, wanted, sizeof(wanted))) {
                cg_hex(lower, wanted, sizeof(wanted));
                if (strcmp(lower, digits) != 0)
                        return cg_fail(err, CG_E_STATE, "%s is another file: its SHA-256 is %s", path,
                                       digits);
                add_safe(&b, path);
                cg_buf_addf(&b, " has the SHA-256 %s", digits);
                return print_line(&b, err);
        }
        if ((with ? read_manifest(o, f, err) : search_log(f, err)) < 0)
                return -1;
        if (!f->manifest)
                return cg_fail(err, CG_E_STATE,
                               "%s was not signed in this user's audit log: its SHA-256 is %s", path, digits);
        return say_signed(path, f, err);
}

static int parse(struct signed_options *o, int argc, char **argv, struct cg_err *err)
{
        struct cg_optscan scan = CG_OPT_SCAN(table, o->command, argc, argv, 1);
        static const struct cg_opt_place places[] = {
                CG_OPT_PLACE(OUT, struct signed_options, out),
                CG_OPT_PLACE(KEY, struct signed_options, key),
                CG_OPT_PLACE(KEY_FILE, struct signed_options, key_file),
                CG_OPT_PLACE(JSON, struct signed_options, json),
        };
        const size_t most = o->command == VERIFY ? 2 : 1;
        uint8_t digest[SHA256_DIGEST_SIZE];
        const char *value;
        size_t n = 0;
        int id;

        while ((id = cg_opt_read(&scan, places, CG_ARRAY_LEN(places), o, &value, err)) > CG_OPT_END) {
                if (id == HELP)
                        return HELP;
                if (n == most)
                        return cg_fail(err, CG_E_INVAL, "unexpected argument %s", value);
                o->words[n++] = value;
        }
        if (id == CG_OPT_END && o->json && o->out)
                return cg_fail(err, CG_E_INVAL, "--json and --out exclude each other");
        if (id == CG_OPT_END && o->key &&
            (!o->words[1] || cg_audit_unhex(o->words[1], digest, sizeof(digest))))
                return cg_fail(err, CG_E_INVAL,
                               "--key is for a MANIFEST: nothing else has another's signature");
        if (id == CG_OPT_END && !n && (o->json || o->out))
                return cg_fail(err, CG_E_INVAL, "which execution? cellgate artifacts lists them");
        return id;
}

static int command(struct signed_options *o, int argc, char **argv,
                   int (*run)(const struct signed_options *, struct manifest_search *, struct cg_err *))
{
        struct manifest_search f = { .options = o };
        struct cg_err err;
        int r = parse(o, argc, argv, &err);

        if (r == HELP)
                return cg_opt_help(table, CG_ARRAY_LEN(table), o->command,
                                   o->command == VERIFY ? CG_HELP_VERIFY : CG_HELP_ARTIFACTS);
        if (r == 0)
                r = run(o, &f, &err);
        json_decref(f.manifest);
        free(f.text);
        if (r < 0) {
                r = cg_cli_fail(argv[0], &err);
                return err.code == CG_E_STATE ? CG_EXIT_RAISED : r;
        }
        return fflush(stdout) == 0 ? CG_EXIT_OK : CG_EXIT_USAGE;
}

int cg_audit_artifacts_command(int argc, char **argv)
{
        return command(&(struct signed_options){ .command = ARTIFACTS }, argc, argv, artifacts);
}

int cg_audit_verify_command(int argc, char **argv)
{
        return command(&(struct signed_options){ .command = VERIFY }, argc, argv, verify);
}
