/* Masked credentials: see mask.h. */
#include "sandbox/egress/mask.h"

#include <sys/mman.h>
#include <sys/random.h>

#include "base/fd.h"
#include "sandbox/egress/client.h"
#include "sandbox/egress/policy.h"
#include "sandbox/settings/extract.h"

void cg_masks_fini(struct cg_masks *masks)
{
        for (size_t i = 0; i < masks->n; i++) {
                free(masks->v[i].fake);
                if (masks->v[i].real)
                        explicit_bzero(masks->v[i].real, strlen(masks->v[i].real));
                free(masks->v[i].real);
        }
        free(masks->v);
        cg_buf_fini(&masks->warnings);
        *masks = (struct cg_masks){ 0 };
}

/* "fake_value_" and a random UUID, as long as the secret: some programs check a token's length. */
static char *make_fake(size_t len, struct cg_err *err)
{
        static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_0";
        unsigned char r[16], more;
        char head[64], *fake;
        size_t n;

        if (getrandom(r, sizeof(r), 0) != (ssize_t)sizeof(r)) {
                cg_fail_errno(err, "random numbers");
                return NULL;
        }
        r[6] = (unsigned char)((r[6] & 0x0f) | 0x40);
        r[8] = (unsigned char)((r[8] & 0x3f) | 0x80);
        snprintf(head, sizeof(head),
                 CG_EGRESS_FAKE "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", r[0],
                 r[1], r[2], r[3], r[4], r[5], r[6], r[7], r[8], r[9], r[10], r[11], r[12], r[13], r[14],
                 r[15]);
        n = strlen(head);
        fake = calloc(1, CG_MAX(len, n) + 1);
        if (!fake) {
                cg_fail(err, CG_E_NOMEM, "mask");
                return NULL;
        }
        memcpy(fake, head, n);
        for (; n < len; n++) {
                if (getrandom(&more, 1, 0) != 1)
                        more = (unsigned char)n;
                fake[n] = alphabet[more % 64];
        }
        return fake;
}

/* The fake for @real: the same for the same value and credential. Borrowed; NULL on failure. */
static const char *fake_for(struct cg_masks *m, const struct cg_settings_cred *cred, const char *real,
                            size_t len, struct cg_err *err)
{
        struct cg_mask mask = { .cred = cred }, *v;

        for (size_t i = 0; i < m->n; i++)
                if (m->v[i].cred == cred && strlen(m->v[i].real) == len &&
                    memcmp(m->v[i].real, real, len) == 0)
                        return m->v[i].fake;
        v = cg_grow(m->v, &m->cap, m->n, sizeof(*v));
        if (!v) {
                cg_fail(err, CG_E_NOMEM, "mask");
                return NULL;
        }
        m->v = v;
        mask.fake = make_fake(len, err);
        mask.real = mask.fake ? strndup(real, len) : NULL;
        if (!mask.real) {
                if (mask.fake)
                        cg_fail(err, CG_E_NOMEM, "mask");
                free(mask.fake);
                return NULL;
        }
        m->v[m->n++] = mask;
        return mask.fake;
}

/* A part of a text that is replaced by a fake. */
struct span {
        size_t start, end;
        const char *fake; /* borrowed */
};

struct spans {
        struct span *v;
        size_t n, cap;
        size_t len; /* of the text */
};

static void spans_fini(struct spans *s)
{
        free(s->v);
}

static int span_add(struct spans *s, size_t start, size_t end, const char *fake, struct cg_err *err)
{
        struct span *v = cg_grow(s->v, &s->cap, s->n, sizeof(*v));

        if (!v)
                return cg_fail(err, CG_E_NOMEM, "mask");
        s->v = v;
        v[s->n++] = (struct span){ start, end, fake };
        return 0;
}

static int by_length(const void *a, const void *b)
{
        size_t la = strlen(((const struct cg_mask *)a)->real), lb = strlen(((const struct cg_mask *)b)->real);

        return (la < lb) - (la > lb);
}

static int by_start(const void *a, const void *b)
{
        const struct span *sa = a, *sb = b;

        return (sa->start > sb->start) - (sa->start < sb->start);
}

/*
 * Every other place of the values in @text. Longer values first: a shorter one that is a part of it
 * would leave the rest of the longer one readable.
 */
static int find_duplicates(const struct cg_masks *m, const struct cg_settings_cred *cred, const char *text,
                           struct spans *found, struct cg_err *err)
{
        cg_auto_free char *taken = calloc(1, found->len + 1);
        cg_auto_free struct cg_mask *sorted = calloc(m->n + 1, sizeof(*sorted));
        int r = 0;

        if (!taken || !sorted)
                return cg_fail(err, CG_E_NOMEM, "mask");
        for (size_t i = 0; i < found->n; i++)
                memset(taken + found->v[i].start, 1, found->v[i].end - found->v[i].start);
        memcpy(sorted, m->v, m->n * sizeof(*sorted));
        qsort(sorted, m->n, sizeof(*sorted), by_length);
        for (size_t i = 0; i < m->n; i++) {
                const char *real = sorted[i].real, *p;
                size_t n = strlen(real), at = 0;

                if (sorted[i].cred != cred)
                        continue;
                while (r == 0 && at < found->len && (p = memmem(text + at, found->len - at, real, n))) {
                        size_t start = (size_t)(p - text);

                        at = start + 1;
                        if (memchr(taken + start, 1, n))
                                continue;
                        memset(taken + start, 1, n);
                        at = start + n;
                        r = span_add(found, start, start + n, sorted[i].fake, err);
                }
        }
        qsort(found->v, found->n, sizeof(*found->v), by_start);
        return r;
}

static int find_matches(struct cg_masks *m, const struct cg_settings_cred *cred, const char *text,
                        struct spans *found, struct cg_err *err)
{
        cg_auto_extract struct cg_extract *x = NULL;
        size_t start, end, last = 0;
        int r;

        if ((r = cg_extract_new(cred->extract, &x, err)) < 0 ||
            (r = cg_extract_start(x, text, found->len, err)) < 0)
                return r;
        while ((r = cg_extract_next(x, &start, &end, err)) == 1) {
                const char *fake;

                if (start == end) /* no secret in it */
                        continue;
                if (start < last)
                        return cg_fail(err, CG_E_INVAL, "the values that the pattern finds overlap");
                last = end;
                fake = fake_for(m, cred, text + start, end - start, err);
                if (!fake)
                        return CG_E_NOMEM;
                r = span_add(found, start, end, fake, err);
                if (r < 0)
                        return r;
        }
        return r;
}

/* Writes @text to @out, every match's first group replaced. Returns how many, or negative. */
static int replace_matches(struct cg_masks *m, const struct cg_settings_cred *cred, const char *text,
                           size_t len, struct cg_buf *out, struct cg_err *err)
{
        CG_CLEANUP(spans_fini) struct spans found = { .len = len };
        size_t at = 0;
        int n, r = find_matches(m, cred, text, &found, err);

        if (r < 0) {
                cg_err_prefix(err, "credentials: extract of %s", cred->what);
                return r;
        }
        n = (int)found.n; /* without duplicates */
        if (!n)
                return 0;
        if (cred->mask_duplicates && (r = find_duplicates(m, cred, text, &found, err)) < 0)
                return r;
        for (size_t i = 0; i < found.n; i++) {
                cg_buf_add(out, text + at, found.v[i].start - at);
                cg_buf_adds(out, found.v[i].fake);
                at = found.v[i].end;
        }
        cg_buf_add(out, text + at, len - at);
        r = cg_buf_end(out, err);
        return r ?: n;
}

/* The masked text in @out. 0; negative; 1: no match, and the settings leave or (*deny) deny it. */
static int mask_text(struct cg_masks *m, const struct cg_settings_cred *cred, const char *text, size_t len,
                     struct cg_buf *out, bool *deny, struct cg_err *err)
{
        const char *fake;
        size_t n = len;
        int r;

        *deny = false;
        if (!cred->extract) {
                /* The line end of a file is not the token's: clients leave it out. */
                while (n && (text[n - 1] == '\n' || text[n - 1] == '\r'))
                        n--;
                fake = n ? fake_for(m, cred, text, n, err) : "";
                if (!fake)
                        return err ? err->code : CG_E_NOMEM;
                cg_buf_adds(out, fake);
                cg_buf_add(out, text + n, len - n);
                return cg_buf_end(out, err);
        }
        r = replace_matches(m, cred, text, len, out, err);
        if (r != 0)
                return CG_MIN(r, 0);
        if (cred->no_match == CG_CRED_NO_MATCH_ERROR)
                return cg_fail(err, CG_E_INVAL,
                               "credentials: the pattern of %s matches nothing in it (onExtractNoMatch is "
                               "\"error\")",
                               cred->what);
        *deny = cred->no_match == CG_CRED_NO_MATCH_DENY;
        if (!*deny)
                cg_buf_try_addf(
                        &m->warnings, NULL,
                        "Warning: the pattern of credential %s matches nothing in it; it is left as it "
                        "is\n",
                        cred->what);
        return 1;
}

static int mask_var(struct cg_masks *m, const struct cg_settings_cred *cred, struct cg_environ *env,
                    struct cg_err *err)
{
        cg_auto_buf struct cg_buf out;
        const char *value = cg_environ_get(env, cred->what);
        bool deny;
        int r;

        cg_buf_init(&out, CG_MASK_FILE_MAX * 2);
        if (!value || !value[0])
                return 0;
        r = mask_text(m, cred, value, strlen(value), &out, &deny, err);
        if (r < 0)
                return r;
        if (r == 0)
                return cg_environ_set(env, cred->what, out.data, err);
        return deny ? cg_environ_set(env, cred->what, NULL, err) : 0;
}

static int add_file_rule(struct cg_rules *rules, enum cg_rule_kind kind, const struct cg_place *place,
                         struct cg_buf *content, struct cg_err *err)
{
        int r = cg_rules_add(rules, kind, place, "credentials.files", err);

        if (r < 0 || kind != CG_RULE_MASK)
                return r;
        rules->v[rules->n - 1].data = cg_buf_steal(content, &rules->v[rules->n - 1].len);
        return 0;
}

static int read_place(const char *path, char **text, size_t *len, struct cg_err *err)
{
        /* A FIFO that an earlier command has put there would be waited for. */
        cg_auto_fd int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        struct stat st;

        if (fd < 0 || fstat(fd, &st) < 0)
                return cg_fail_errno(err, "cannot open %s", path);
        if (!S_ISREG(st.st_mode))
                return cg_fail(err, CG_E_INVAL,
                               "%s is not a regular file but a FIFO or a device, for example: remove it",
                               path);
        return cg_read_fd(fd, path, CG_MASK_FILE_MAX, text, len, err);
}

static int mask_file(struct cg_masks *m, const struct cg_settings_cred *cred, const struct cg_path_base *base,
                     struct cg_rules *rules, struct cg_err *err)
{
        cg_auto_buf struct cg_buf out = { .max = CG_MASK_FILE_MAX * 2 };
        cg_auto_place struct cg_place place = { .path = "" };
        cg_auto_free char *text = NULL;
        char path[PATH_MAX];
        size_t len;
        bool deny;
        int r = cg_path_absolute(base, cred->what, path, err);

        if (r < 0 || (r = cg_place_find(path, &place, err)) < 0 || place.missing)
                return r;
        if (place.folder)
                return cg_fail(err, CG_E_INVAL,
                               "credentials: %s is a folder: mode \"mask\" is for single files", cred->what);
        r = read_place(place.path, &text, &len, err);
        if (r < 0) {
                cg_err_prefix(err, "credentials");
                return r;
        }
        r = mask_text(m, cred, text, strlen(text), &out, &deny, err);
        /* Bytes after a NUL were not searched: they are not shown. */
        if (r == 0 && strlen(text) != len)
                cg_buf_try_addf(&m->warnings, NULL,
                                "Warning: credential %s is not text; bytes after its first NUL are left "
                                "out\n",
                                cred->what);
        explicit_bzero(text, len);
        if (r < 0)
                return r;
        if (r == 0)
                return add_file_rule(rules, CG_RULE_MASK, &place, &out, err);
        return deny ? add_file_rule(rules, CG_RULE_DENY_READ, &place, NULL, err) : 0;
}

/* ---- for the proxy */

int cg_masks_secrets(const struct cg_masks *masks, const struct cg_settings *s, int *ret, struct cg_err *err)
{
        cg_auto_fd int fd = -1;

        *ret = -1;
        if (!masks->n)
                return 0;
        fd = memfd_create("cellgate-secrets", MFD_CLOEXEC);
        if (fd < 0)
                return cg_fail_errno(err, "memory for secrets");
        for (size_t i = 0; i < masks->n; i++) {
                const struct cg_mask *m = &masks->v[i];
                bool var = m->cred >= s->creds.vars && m->cred < s->creds.vars + s->creds.n_vars;
                size_t number = var ? (size_t)(m->cred - s->creds.vars)
                                    : s->creds.n_vars + (size_t)(m->cred - s->creds.files);
                struct cg_egress_secret head = { .cred = (uint32_t)number,
                                                 .fake_len = (uint32_t)strlen(m->fake),
                                                 .real_len = (uint32_t)strlen(m->real) };

                if (head.fake_len > CG_EGRESS_SECRET_MAX)
                        continue; /* cg_masks_make() has warned */
                if (cg_write_all(fd, &head, sizeof(head), err) < 0 ||
                    cg_write_all(fd, m->fake, head.fake_len, err) < 0 ||
                    cg_write_all(fd, m->real, head.real_len, err) < 0)
                        return -1;
        }
        if (lseek(fd, 0, SEEK_SET) < 0)
                return cg_fail_errno(err, "memory for secrets");
        *ret = cg_steal_fd(&fd);
        return 0;
}

json_t *cg_masks_hosts(const struct cg_masks *masks, const struct cg_settings *s)
{
        size_t n = s->creds.n_vars + s->creds.n_files;
        json_t *list = masks->n ? json_array() : NULL;

        for (size_t i = 0; list && i < n; i++) {
                const struct cg_settings_cred *cred = i < s->creds.n_vars
                                                              ? &s->creds.vars[i]
                                                              : &s->creds.files[i - s->creds.n_vars];
                json_t *o = json_object(), *hosts = json_array();

                for (size_t k = 0; k < cred->inject_hosts.n; k++)
                        json_array_append_new(hosts, json_string(cred->inject_hosts.v[k]));
                if (cred->has_hosts || cred->mode == CG_CRED_DENY)
                        json_object_set(o, "hosts", hosts);
                json_decref(hosts);
                for (size_t k = 0; k < masks->n; k++)
                        if (masks->v[k].cred == cred && strlen(masks->v[k].real) != strlen(masks->v[k].fake))
                                json_object_set_new(o, "resized", json_true());
                json_array_append_new(list, o);
        }
        return list;
}

int cg_masks_make(const struct cg_settings *s, const struct cg_path_base *base, struct cg_environ *env,
                  struct cg_rules *rules, struct cg_masks *ret, struct cg_err *err)
{
        cg_auto_masks struct cg_masks m = { .warnings = { .max = 1u << 20 } };
        size_t bytes = 0;
        int r;

        for (size_t i = 0; i < s->creds.n_vars; i++)
                if (s->creds.vars[i].mode == CG_CRED_MASK &&
                    (r = mask_var(&m, &s->creds.vars[i], env, err)) < 0)
                        return r;
        for (size_t i = 0; i < s->creds.n_files && !rules->off; i++)
                if (s->creds.files[i].mode == CG_CRED_MASK &&
                    (r = mask_file(&m, &s->creds.files[i], base, rules, err)) < 0)
                        return r;
        /* A secret can be put back if it is not too large, and there are not too many. */
        for (size_t i = 0; i < m.n; i++) {
                size_t n = strlen(m.v[i].fake);

                if (n > CG_EGRESS_SECRET_MAX)
                        cg_buf_try_addf(
                                &m.warnings, NULL,
                                "Warning: credential %s is over %u bytes: it is masked, but not put back on "
                                "the way out\n",
                                m.v[i].cred->what, CG_EGRESS_SECRET_MAX);
                else
                        bytes += sizeof(struct cg_egress_secret) + 2 * n;
        }
        if (m.n && s->creds.n_vars + s->creds.n_files > CG_POLICY_CREDS_MAX)
                return cg_fail(err, CG_E_LIMIT, "credentials: at most %d of them where some are masked",
                               CG_POLICY_CREDS_MAX);
        if (m.n > CG_EGRESS_SECRETS_MAX || bytes > CG_EGRESS_SECRETS_BYTES)
                return cg_fail(err, CG_E_LIMIT, "credentials: at most %d masked values, %u bytes in all",
                               CG_EGRESS_SECRETS_MAX, CG_EGRESS_SECRETS_BYTES);
        *ret = m;
        m = (struct cg_masks){ 0 };
        return 0;
}
