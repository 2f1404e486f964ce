/* Masks. */
#include "sandbox/mask.h"

#include <errno.h>
#include <fcntl.h>
#include <regex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "sandbox/egress.h"
#include "sandbox/egress_policy.h"

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
        *masks = (struct cg_masks){0};
}

/* "fake_value_" and a random UUID, as long as what it stands for: some programs look at a token's length. */
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
        snprintf(head, sizeof(head), CG_EGRESS_FAKE "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", r[0], r[1],
                 r[2], r[3], r[4], r[5], r[6], r[7], r[8], r[9], r[10], r[11], r[12], r[13], r[14], r[15]);
        n = strlen(head);
        fake = calloc(1, (len > n ? len : n) + 1);
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
static const char *fake_for(struct cg_masks *m, const struct cg_settings_cred *cred, const char *real, size_t len,
                            struct cg_err *err)
{
        struct cg_mask mask = {.cred = cred};

        for (size_t i = 0; i < m->n; i++) {
                if (m->v[i].cred == cred && strlen(m->v[i].real) == len && !memcmp(m->v[i].real, real, len))
                        return m->v[i].fake;
        }
        if (m->n == m->cap) {
                size_t cap = m->cap ? m->cap * 2 : 8;
                struct cg_mask *v = realloc(m->v, cap * sizeof(*v));

                if (!v) {
                        cg_fail(err, CG_E_NOMEM, "mask");
                        return NULL;
                }
                m->v = v;
                m->cap = cap;
        }
        mask.fake = make_fake(len, err);
        mask.real = mask.fake ? strndup(real, len) : NULL;
        if (!mask.real) {
                free(mask.fake);
                return NULL;
        }
        m->v[m->n++] = mask;
        return mask.fake;
}

/* Writes @text to @out with every match's first group replaced. Returns how many, or negative. */
static int replace_matches(struct cg_masks *m, const struct cg_settings_cred *cred, const char *text, size_t len,
                           struct cg_buf *out, struct cg_err *err)
{
        regmatch_t match[2];
        regex_t re;
        size_t at = 0;
        int found = 0, e = 0;

        if (regcomp(&re, cred->extract, REG_EXTENDED | REG_NEWLINE) != 0)
                return cg_fail(err, CG_E_INVAL, "extract of %s", cred->what);
        while (e == 0 && at <= len) {
                const char *fake;

                match[0] = (regmatch_t){.rm_so = (regoff_t)at, .rm_eo = (regoff_t)len};
                if (regexec(&re, text, 2, match, REG_STARTEND | (at ? REG_NOTBOL : 0)) != 0)
                        break;
                if (match[1].rm_so < 0 || match[1].rm_so == match[1].rm_eo) { /* no secret in it */
                        size_t next = (size_t)match[0].rm_eo > at ? (size_t)match[0].rm_eo : at + 1;

                        if (next > len)
                                break;
                        e = cg_buf_add(out, text + at, next - at, err);
                        at = next;
                        continue;
                }
                fake = fake_for(m, cred, text + match[1].rm_so, (size_t)(match[1].rm_eo - match[1].rm_so), err);
                e = fake ? cg_buf_add(out, text + at, (size_t)match[1].rm_so - at, err) : CG_E_NOMEM;
                if (e == 0)
                        e = cg_buf_adds(out, fake, err);
                at = (size_t)match[1].rm_eo;
                found++;
        }
        regfree(&re);
        if (e == 0 && at < len)
                e = cg_buf_add(out, text + at, len - at, err);
        return e < 0 ? e : found;
}

/* Every other place where a masked value stands as it is. */
static int replace_duplicates(struct cg_masks *m, const struct cg_settings_cred *cred, struct cg_buf *text, struct cg_err *err)
{
        for (size_t i = 0; i < m->n; i++) {
                const struct cg_mask *mask = &m->v[i];
                size_t n = strlen(mask->real), at = 0;
                struct cg_buf out;
                const char *p;
                int e = 0;

                if (mask->cred != cred || !n)
                        continue;
                cg_buf_init(&out, text->max);
                while (e == 0 && at < text->len && (p = memmem(text->data + at, text->len - at, mask->real, n))) {
                        e = cg_buf_add(&out, text->data + at, (size_t)(p - text->data) - at, err);
                        if (e == 0)
                                e = cg_buf_adds(&out, mask->fake, err);
                        at = (size_t)(p - text->data) + n;
                }
                if (e == 0 && at < text->len)
                        e = cg_buf_add(&out, text->data + at, text->len - at, err);
                cg_buf_fini(text);
                *text = out;
                if (e < 0)
                        return e;
        }
        return 0;
}

/* 1: nothing matched, and the setting says to leave it; *deny: it says to deny. */
static int no_match(struct cg_masks *m, const struct cg_settings_cred *cred, bool *deny, struct cg_err *err)
{
        switch (cred->no_match) {
        case CG_CRED_NO_MATCH_ERROR:
                return cg_fail(err, CG_E_INVAL, "credentials: the pattern of %s matches nothing in it (onExtractNoMatch is "
                               "\"error\")", cred->what);
        case CG_CRED_NO_MATCH_DENY:
                *deny = true;
                return 1;
        default:
                cg_buf_addf(&m->warnings, NULL, "Warning: the pattern of credential %s matches nothing in it; it is left as it "
                            "is\n", cred->what);
                return 1;
        }
}

/* The line end that a file has behind its token is not the token's: who sends the token leaves it out. */
static int mask_whole(struct cg_masks *m, const struct cg_settings_cred *cred, const char *text, size_t len, struct cg_buf *out,
                      struct cg_err *err)
{
        const char *fake;
        size_t n = len;
        int e;

        while (n && (text[n - 1] == '\n' || text[n - 1] == '\r'))
                n--;
        if (!n)
                return cg_buf_add(out, text, len, err);
        fake = fake_for(m, cred, text, n, err);
        e = fake ? cg_buf_adds(out, fake, err) : err ? err->code : CG_E_NOMEM;
        return e == 0 ? cg_buf_add(out, text + n, len - n, err) : e;
}

/* The masked text in @out. 0; 1 when there is none (see no_match()); negative. */
static int mask_text(struct cg_masks *m, const struct cg_settings_cred *cred, const char *text, size_t len, struct cg_buf *out,
                     bool *deny, struct cg_err *err)
{
        int n;

        *deny = false;
        if (!cred->extract)
                return mask_whole(m, cred, text, len, out, err);
        n = replace_matches(m, cred, text, len, out, err);
        if (n == 0)
                return no_match(m, cred, deny, err);
        if (n > 0 && cred->mask_duplicates)
                return replace_duplicates(m, cred, out, err);
        return n < 0 ? n : 0;
}

static int mask_var(struct cg_masks *m, const struct cg_settings_cred *cred, struct cg_environ *env, struct cg_err *err)
{
        cg_auto_buf struct cg_buf out;
        const char *value = cg_environ_get(env, cred->what);
        bool deny;
        int e;

        cg_buf_init(&out, CG_MASK_FILE_MAX * 2);
        if (!value || !value[0])
                return 0;
        e = mask_text(m, cred, value, strlen(value), &out, &deny, err);
        if (e == 0)
                return cg_environ_set(env, cred->what, out.data, err);
        return e > 0 && deny ? cg_environ_set(env, cred->what, NULL, err) : e > 0 ? 0 : e;
}

static int add_file_rule(struct cg_rules *rules, enum cg_rule_kind kind, const struct cg_place *place, struct cg_buf *content,
                         struct cg_err *err)
{
        int e = cg_rules_add(rules, kind, place, "credentials.files", err);

        if (e == 0 && kind == CG_RULE_MASK)
                rules->v[rules->n - 1].data = cg_buf_steal(content, &rules->v[rules->n - 1].len);
        return e;
}

/* A FIFO that an earlier command has put there would be waited for. */
static int read_regular(const char *path, char **ret, size_t *len, struct cg_err *err)
{
        cg_auto_fd int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        struct stat st;

        if (fd < 0 || fstat(fd, &st) < 0)
                return cg_fail_errno(err, "cannot open %s", path);
        if (!S_ISREG(st.st_mode))
                return cg_fail(err, CG_E_INVAL, "%s is no file but something else (a FIFO or a device, say): remove it", path);
        return cg_read_fd(fd, path, CG_MASK_FILE_MAX, ret, len, err);
}

static int mask_found(struct cg_masks *m, const struct cg_settings_cred *cred, const struct cg_place *place,
                      struct cg_rules *rules, struct cg_err *err)
{
        cg_auto_buf struct cg_buf out;
        cg_auto_free char *text = NULL;
        size_t len;
        bool deny;
        int e;

        cg_buf_init(&out, CG_MASK_FILE_MAX * 2);
        if (place->folder)
                return cg_fail(err, CG_E_INVAL, "credentials: %s is a folder: mode \"mask\" is for single files", cred->what);
        e = read_regular(place->path, &text, &len, err);
        if (e < 0)
                return cg_err_prefix(err, "credentials");
        e = mask_text(m, cred, text, strlen(text), &out, &deny, err);
        if (e == 0 && strlen(text) != len) /* behind a NUL nothing was looked at: nothing of it is shown */
                cg_buf_addf(&m->warnings, NULL, "Warning: credential %s is not text; what stands behind its first NUL is left "
                            "out\n", cred->what);
        explicit_bzero(text, len);
        if (e < 0)
                return e;
        if (e > 0)
                return deny ? add_file_rule(rules, CG_RULE_DENY_READ, place, NULL, err) : 0;
        return add_file_rule(rules, CG_RULE_MASK, place, &out, err);
}

static int mask_file(struct cg_masks *m, const struct cg_settings_cred *cred, const struct cg_path_base *base,
                     struct cg_rules *rules, struct cg_err *err)
{
        char path[PATH_MAX];
        struct cg_place place;
        int e = cg_path_absolute(base, cred->what, path, err);

        if (e == 0)
                e = cg_place_find(path, &place, err);
        if (e < 0)
                return e;
        if (!place.missing)
                e = mask_found(m, cred, &place, rules, err);
        cg_place_fini(&place);
        return e;
}

/* ---- for the proxy */

static size_t number_of(const struct cg_settings *s, const struct cg_settings_cred *cred)
{
        if (cred >= s->creds.vars && cred < s->creds.vars + s->creds.n_vars)
                return (size_t)(cred - s->creds.vars);
        return s->creds.n_vars + (size_t)(cred - s->creds.files);
}

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
                struct cg_egress_secret head = {.cred = (uint32_t)number_of(s, m->cred), .fake_len = (uint32_t)strlen(m->fake),
                                                .real_len = (uint32_t)strlen(m->real)};

                if (head.fake_len > CG_EGRESS_SECRET_MAX)
                        continue; /* cg_masks_make() has said so */
                if (cg_write_all(fd, &head, sizeof(head), err) < 0 || cg_write_all(fd, m->fake, head.fake_len, err) < 0 ||
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
                const struct cg_settings_cred *cred = i < s->creds.n_vars ? &s->creds.vars[i] : &s->creds.files[i - s->creds.n_vars];
                json_t *o = json_object(), *hosts = json_array();

                for (size_t k = 0; k < cred->inject_hosts.n; k++)
                        json_array_append_new(hosts, json_string(cred->inject_hosts.v[k]));
                if (cred->has_hosts || cred->mode == CG_CRED_DENY)
                        json_object_set(o, "hosts", hosts);
                json_decref(hosts);
                for (size_t k = 0; k < masks->n; k++) {
                        if (masks->v[k].cred == cred && strlen(masks->v[k].real) != strlen(masks->v[k].fake))
                                json_object_set_new(o, "resized", json_true());
                }
                json_array_append_new(list, o);
        }
        return list;
}

/* What cannot be put back, and what is too much. */
static int check_masks(struct cg_masks *m, const struct cg_settings *s, struct cg_err *err)
{
        size_t bytes = 0;

        for (size_t i = 0; i < m->n; i++) {
                size_t n = strlen(m->v[i].fake);

                if (n > CG_EGRESS_SECRET_MAX)
                        cg_buf_addf(&m->warnings, NULL, "Warning: credential %s is over %u bytes: it is masked, but not put back on "
                                    "the way out\n", m->v[i].cred->what, CG_EGRESS_SECRET_MAX);
                else
                        bytes += sizeof(struct cg_egress_secret) + 2 * n;
        }
        if (m->n && s->creds.n_vars + s->creds.n_files > CG_POLICY_CREDS_MAX)
                return cg_fail(err, CG_E_LIMIT, "credentials: at most %d of them where some are masked", CG_POLICY_CREDS_MAX);
        if (m->n > CG_EGRESS_SECRETS_MAX || bytes > CG_EGRESS_SECRETS_BYTES)
                return cg_fail(err, CG_E_LIMIT, "credentials: at most %d masked values, %u bytes in all", CG_EGRESS_SECRETS_MAX,
                               CG_EGRESS_SECRETS_BYTES);
        return 0;
}

int cg_masks_make(const struct cg_settings *s, const struct cg_path_base *base, struct cg_environ *env, struct cg_rules *rules,
                  struct cg_masks *ret, struct cg_err *err)
{
        struct cg_masks m = {0};
        int e = 0;

        cg_buf_init(&m.warnings, 1u << 20);
        for (size_t i = 0; i < s->creds.n_vars && e == 0; i++) {
                if (s->creds.vars[i].mode == CG_CRED_MASK)
                        e = mask_var(&m, &s->creds.vars[i], env, err);
        }
        for (size_t i = 0; i < s->creds.n_files && e == 0 && !rules->off; i++) {
                if (s->creds.files[i].mode == CG_CRED_MASK)
                        e = mask_file(&m, &s->creds.files[i], base, rules, err);
        }
        if (e == 0)
                e = check_masks(&m, s, err);
        if (e < 0) {
                cg_masks_fini(&m);
                return e;
        }
        *ret = m;
        return 0;
}
