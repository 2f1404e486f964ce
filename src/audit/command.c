/* `cellgate audit`: shows, checks and exports the audit log. Runs in cellgate-audit. */
#include <time.h>
#include "audit/ocsf.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/state_dir.h"
#include "base/text.h"
#include "cli/common/cli.h"
#include "cli/common/opts.h"
#include "cli/help.h"
#include "cli/option_tables.h"

#define SHOWN_BODY 160
/* A line of an exported file. */
#define MAX_EXPORT ((size_t)1 << 30)

enum { SHOW = 1, VERIFY = 2, HEAD = 4, EXPORT = 8 };
enum option { CG_AUDIT_OPTION_IDS };

static const struct cg_opt table[] = { CG_AUDIT_OPTION_ROWS };

struct audit_options {
        unsigned what;
        const char *session, *key, *kept, *exported;
        int64_t since_ms;
        int from, to; /* 0: not given */
        bool json, ocsf, partial;
};

/* ------------------------------------------------------------------ options */

static int parse(struct audit_options *c, int argc, char **argv, struct cg_err *err)
{
        static const struct {
                const char *name;
                unsigned what;
        } commands[] = { { "verify", VERIFY }, { "head", HEAD }, { "export", EXPORT } };
        static const struct cg_opt_place places[] = {
                CG_OPT_PLACE(SESSION, struct audit_options, session),
                CG_OPT_PLACE(JSON, struct audit_options, json),
                CG_OPT_PLACE(OCSF, struct audit_options, ocsf),
                CG_OPT_PLACE(KEY, struct audit_options, key),
                CG_OPT_PLACE(KEPT, struct audit_options, kept),
                CG_OPT_PLACE(EXPORTED, struct audit_options, exported),
                CG_OPT_PLACE(PARTIAL, struct audit_options, partial),
                CG_OPT_PLACE_INT(FROM, "--from", struct audit_options, from, 1, INT32_MAX),
                CG_OPT_PLACE_INT(TO, "--to", struct audit_options, to, 1, INT32_MAX),
        };
        struct cg_optscan o;
        const char *value;
        int id;

        for (size_t i = 0; argc > 1 && i < CG_ARRAY_LEN(commands); i++)
                if (strcmp(argv[1], commands[i].name) == 0)
                        c->what = commands[i].what;
        o = CG_OPT_SCAN(table, c->what, argc, argv, c->what == SHOW ? 1 : 2);
        while ((id = cg_opt_read(&o, places, CG_ARRAY_LEN(places), c, &value, err)) > CG_OPT_END) {
                if (id == HELP)
                        return HELP;
                if (id != SINCE)
                        return cg_fail(err, CG_E_INVAL, "unexpected argument %s: --help lists the commands",
                                       value);
                if (cg_opt_since(value, &c->since_ms, err) < 0)
                        return -1;
        }
        if (c->json && c->ocsf)
                return cg_fail(err, CG_E_INVAL, "--json and --ocsf exclude each other");
        return id;
}

/* ------------------------------------------------------------------ showing */

void cg_audit_time_text(int64_t seconds, char ret[32])
{
        time_t t = (time_t)seconds;
        struct tm tm;

        localtime_r(&t, &tm);
        strftime(ret, 32, "%Y-%m-%dT%H:%M:%S", &tm);
}

static bool is_wanted(const struct audit_options *c, const struct cg_audit_record *r)
{
        return r->time_us / 1000 >= c->since_ms && r->seq >= c->from && (!c->to || r->seq <= c->to) &&
               (!c->session || strncmp(r->session, c->session, strlen(c->session)) == 0);
}

static int show_record(void *data, const struct cg_audit_record *r, struct cg_err *err)
{
        const struct audit_options *c = data;
        cg_auto_buf struct cg_buf b = { .max = CG_AUDIT_MAX_BODY };
        cg_auto_json json_t *body = NULL, *shown = NULL;
        cg_auto_free char *line = NULL;
        char when[32];

        if (!is_wanted(c, r))
                return 0;
        cg_audit_time_text(r->time_us / 1000000, when);
        if (!c->json && !c->ocsf) {
                if (cg_text_try_render_as(&b, r->body, r->body_len, SHOWN_BODY, CG_TEXT_LINE, err) < 0)
                        return -1;
                printf("%" PRId64 "  %s  %.8s  %-18s %s\n", r->seq, when, r->session, r->kind, b.data);
                return 0;
        }
        if (cg_json_object(r->body, r->body_len, "body", &body, NULL) < 0)
                body = json_stringn_nocheck(r->body, r->body_len);
        shown = c->ocsf ? cg_audit_ocsf(r, body)
                        : json_pack("{s:I, s:s, s:I, s:s, s:s, s:O}", "seq", (json_int_t)r->seq, "time", when,
                                    "time_us", (json_int_t)r->time_us, "session", r->session, "kind", r->kind,
                                    "body", body);
        line = cg_json_text(shown, NULL);
        if (!line)
                return cg_fail(err, CG_E_PARSE, "record %" PRId64 " is no text: cellgate audit verify",
                               r->seq);
        puts(line);
        return 0;
}

/* ------------------------------------------------------------------ checking */

struct chain_check {
        const struct audit_options *command;
        const uint8_t *key;
        int64_t seq, head; /* the last record, the last signed one; 0: none yet */
        uint8_t hash[CG_AUDIT_HASH];
        struct cg_audit_record kept; /* seq 0: none */
        bool kept_found;
};

static bool hex_member(const json_t *o, const char *name, uint8_t *ret, size_t n)
{
        return cg_audit_unhex(json_string_value(json_object_get(o, name)), ret, n);
}

static int wrong(struct cg_err *err, int64_t seq, const char *what)
{
        return cg_fail(err, CG_E_STATE, "record %" PRId64 " %s", seq, what);
}

static int check_record(void *data, const struct cg_audit_record *r, struct cg_err *err)
{
        struct chain_check *c = data;
        uint8_t digest[CG_AUDIT_HASH], hash[CG_AUDIT_HASH];
        bool first = !c->seq;

        if (first && r->seq != 1 && !c->command->partial)
                return wrong(err, 1,
                             "is missing: the log's first files are not there (--partial accepts that)");
        if (!first && r->seq != c->seq + 1)
                return wrong(err, c->seq + 1, "is missing");
        cg_audit_digest(r, digest);
        cg_audit_chain(c->hash, digest, hash);
        if ((!first || r->seq == 1) && memcmp(hash, r->hash, sizeof(hash)) != 0)
                return wrong(err, r->seq, "is not what was written, or one before it was replaced");
        if (r->is_head && !cg_audit_signed(r, c->key))
                return wrong(err, r->seq, "has a signature that was not made with this log's key");
        c->seq = r->seq;
        memcpy(c->hash, r->hash, sizeof(c->hash));
        if (r->is_head || first)
                c->head = r->is_head ? r->seq : r->seq - 1;
        else if (r->seq - c->head >= CG_AUDIT_SIGN_EVERY || strcmp(r->kind, CG_AUDIT_ENDED) == 0)
                return wrong(err, r->seq, "has no signature, which was removed");
        if (r->seq == c->kept.seq) {
                c->kept_found = true;
                if (memcmp(c->kept.hash, r->hash, sizeof(r->hash)) != 0)
                        return wrong(err, r->seq,
                                     "is another than the head that was kept: the log was replaced");
        }
        return 0;
}

/* A head that was kept elsewhere, checked by its own signature. */
static int read_kept(struct chain_check *c, struct cg_err *err)
{
        const char *path = c->command->kept;
        cg_auto_free char *text = NULL;
        cg_auto_json json_t *o = NULL;
        uint8_t key[CG_AUDIT_KEY];
        const char *line;
        size_t len;

        if (!path)
                return 0;
        if (cg_read_file(path, MAX_EXPORT, &text, &len, err) < 0)
                return -1;
        while (len && (text[len - 1] == '\n' || text[len - 1] == ' '))
                text[--len] = '\0';
        line = memrchr(text, '\n', len);
        line = line ? line + 1 : text;
        if (cg_json_object(line, strlen(line), path, &o, err) < 0 ||
            cg_json_int(o, "seq", 0, &c->kept.seq, err) < 0)
                return -1;
        c->kept.is_head = true;
        if (!hex_member(o, "hash", c->kept.hash, sizeof(c->kept.hash)) ||
            !hex_member(o, "signature", c->kept.signature, sizeof(c->kept.signature)) ||
            !hex_member(o, "key", key, sizeof(key)) || !cg_audit_signed(&c->kept, key))
                return cg_fail(err, CG_E_PARSE, "%s is no head of an audit log", path);
        if (memcmp(key, c->key, sizeof(key)) != 0)
                return cg_fail(err, CG_E_STATE, "the log has another key than the head in %s", path);
        return 0;
}

static int verify(struct cg_audit_log *log, const struct audit_options *command, struct cg_err *err)
{
        struct chain_check c = { .command = command, .key = cg_audit_public_key(log) };
        int64_t head;

        if (read_kept(&c, err) < 0 || cg_audit_read(log, 0, check_record, &c, err) < 0 ||
            cg_audit_last_head(log, &head, err) < 0)
                return -1;
        if (head > c.seq)
                return wrong(err, c.seq + 1, "is missing: a later one was signed");
        if (c.kept.seq && !c.kept_found)
                return wrong(err, c.kept.seq, "is missing: its head was kept");
        printf("%" PRId64 " records, none changed or missing up to record %" PRId64 ", the last signed one",
               c.seq, c.head);
        if (c.seq > c.head)
                printf("; %" PRId64 " after it", c.seq - c.head);
        puts("");
        return 0;
}

/* ------------------------------------------------------------------ heads and exports */

static int print_line(json_t *o, struct cg_err *err)
{
        cg_auto_json json_t *owned = o;
        cg_auto_free char *text = cg_json_text(owned, NULL);

        if (!text)
                return cg_fail(err, CG_E_NOMEM, "audit log");
        puts(text);
        return 0;
}

static int keep_head(void *data, const struct cg_audit_record *r, struct cg_err *err)
{
        struct cg_audit_record *last = data;

        if (r->is_head)
                *last = *r;
        return 0;
}

struct hex {
        char text[2 * CG_AUDIT_SIGNATURE + 1];
};

static struct hex hex(const uint8_t *bytes, size_t n)
{
        struct hex h = { .text = "" };

        cg_hex(h.text, bytes, n);
        return h;
}

static int head(struct cg_audit_log *log, struct cg_err *err)
{
        struct cg_audit_record last = { .seq = 0 };
        char text[CG_AUDIT_HEAD_TEXT];
        int64_t seq;

        if (cg_audit_last_head(log, &seq, err) < 0 || cg_audit_read(log, seq, keep_head, &last, err) < 0)
                return -1;
        if (!last.seq)
                return cg_fail(err, CG_E_NOTFOUND, "nothing is signed yet");
        cg_audit_head_text(&last, cg_audit_public_key(log), text);
        puts(text);
        return 0;
}

struct export
{
        const struct audit_options *command;
        const uint8_t *key;
        uint8_t before[CG_AUDIT_HASH]; /* of the record before the next */
        bool started, done;
};

/* Records that are not wanted are in the proof by their digests only. */
static int export_record(void *data, const struct cg_audit_record *r, struct cg_err *err)
{
        struct export *e = data;
        bool wanted = is_wanted(e->command, r);
        uint8_t digest[CG_AUDIT_HASH];

        if (!e->started && !wanted) {
                memcpy(e->before, r->hash, sizeof(e->before));
                return 0;
        }
        if (!e->started && print_line(json_pack("{s:s, s:s}", "key", hex(e->key, CG_AUDIT_KEY).text, "before",
                                                hex(e->before, CG_AUDIT_HASH).text),
                                      err) < 0)
                return -1;
        e->started = true;
        cg_audit_digest(r, digest);
        if (print_line(wanted ? json_pack("{s:I, s:I, s:s, s:s, s:s%}", "seq", (json_int_t)r->seq, "time_us",
                                          (json_int_t)r->time_us, "session", r->session, "kind", r->kind,
                                          "body", r->body, r->body_len)
                              : json_pack("{s:I, s:s}", "seq", (json_int_t)r->seq, "digest",
                                          hex(digest, CG_AUDIT_HASH).text),
                       err) < 0)
                return -1;
        if (!r->is_head)
                return 0;
        /* Without an end, all records up to the last signed one. */
        e->done = e->command->to && r->seq >= e->command->to;
        if (print_line(json_pack("{s:I, s:s}", "head", (json_int_t)r->seq, "signature",
                                 hex(r->signature, CG_AUDIT_SIGNATURE).text),
                       err) < 0)
                return -1;
        return e->done ? CG_CLOSED : 0;
}

static int export(struct cg_audit_log *log, const struct audit_options *command, struct cg_err *err)
{
        struct export e = { .command = command, .key = cg_audit_public_key(log) };

        if (cg_audit_read(log, 0, export_record, &e, err) < 0)
                return -1;
        if (!e.started)
                return cg_fail(err, CG_E_NOTFOUND, "no record matches");
        return 0;
}

/* ------------------------------------------------------------------ checking an exported file */

struct slice {
        uint8_t key[CG_AUDIT_KEY];
        struct cg_audit_record last;
        bool started;
        int64_t signed_seq, n;
};

static int check_line(struct slice *s, const json_t *o, struct cg_err *err)
{
        const json_t *body = json_object_get(o, "body");
        struct cg_audit_record r = { .session = json_string_value(json_object_get(o, "session")),
                                     .kind = json_string_value(json_object_get(o, "kind")),
                                     .body = json_string_value(body),
                                     .body_len = json_string_length(body),
                                     .time_us = json_integer_value(json_object_get(o, "time_us")),
                                     .seq = json_integer_value(json_object_get(o, "seq")) };
        uint8_t digest[CG_AUDIT_HASH];

        if (!s->started) {
                s->started = true;
                if (hex_member(o, "key", s->key, sizeof(s->key)) &&
                    hex_member(o, "before", s->last.hash, sizeof(s->last.hash)))
                        return 0;
                return cg_fail(err, CG_E_PARSE, "the first line has no \"key\" and \"before\"");
        }
        if (json_object_get(o, "head")) {
                s->last.is_head = true;
                if (json_integer_value(json_object_get(o, "head")) != s->last.seq ||
                    !hex_member(o, "signature", s->last.signature, sizeof(s->last.signature)) ||
                    !cg_audit_signed(&s->last, s->key))
                        return wrong(err, s->last.seq, "or one before it is not what was signed");
                s->signed_seq = s->last.seq;
                return 0;
        }
        if (s->last.seq && r.seq != s->last.seq + 1)
                return wrong(err, s->last.seq + 1, "is missing");
        if (r.session && r.kind && r.body)
                cg_audit_digest(&r, digest);
        else if (!hex_member(o, "digest", digest, sizeof(digest)))
                return wrong(err, r.seq, "has neither its content nor its digest");
        s->n += r.body != NULL;
        s->last.seq = r.seq;
        cg_audit_chain(s->last.hash, digest, s->last.hash);
        return 0;
}

static int verify_export(const struct audit_options *command, struct cg_err *err)
{
        cg_auto_free char *text = NULL;
        struct slice s = { .started = false };
        size_t len;

        if (cg_read_file(command->exported, MAX_EXPORT, &text, &len, err) < 0)
                return -1;
        for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
                cg_auto_json json_t *o = NULL;

                if (*line && (cg_json_object(line, strlen(line), command->exported, &o, err) < 0 ||
                              check_line(&s, o, err) < 0))
                        return -1;
        }
        if (!s.signed_seq || s.signed_seq != s.last.seq)
                return cg_fail(err, CG_E_STATE, "record %" PRId64 " and those after it have no signature",
                               s.signed_seq + 1);
        printf("%" PRId64 " records, as they were signed with the key %s\n", s.n,
               hex(s.key, CG_AUDIT_KEY).text);
        return 0;
}

/* ------------------------------------------------------------------ the command */

static int run(const struct audit_options *c, struct cg_err *err)
{
        struct cg_audit_log *log = NULL;
        char dir[PATH_MAX];
        int r;

        if (c->exported)
                return verify_export(c, err);
        if (cg_state_folder("audit", dir, err) < 0 || cg_audit_open(dir, c->key, false, &log, err) < 0)
                return -1;
        switch (c->what) {
        case VERIFY:
                r = verify(log, c, err);
                break;
        case HEAD:
                r = head(log, err);
                break;
        case EXPORT:
                r = export(log, c, err);
                break;
        default:
                r = cg_audit_read(log, 0, show_record, (void *)(uintptr_t)c, err);
                break;
        }
        cg_audit_close(log);
        return r;
}

int cg_audit_command(int argc, char **argv)
{
        struct audit_options c = { .what = SHOW };
        struct cg_err err;
        int r = parse(&c, argc, argv, &err);

        if (r == HELP)
                return cg_opt_help(table, CG_ARRAY_LEN(table), ~0u, CG_HELP_AUDIT);
        if (r < 0 || run(&c, &err) < 0) {
                r = cg_cli_fail("audit", &err);
                return err.code == CG_E_STATE && c.what == VERIFY ? 1 : r;
        }
        return fflush(stdout) == 0 ? CG_EXIT_OK : CG_EXIT_USAGE;
}
