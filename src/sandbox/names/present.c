/* See present.h. */
#include "sandbox/names/present.h"

#include <fnmatch.h>

#include "base/fd.h"
#include "sandbox/names/names.h"
#include "sandbox/names/stamps.h"

struct scan {
        const char *folder;
        const struct cg_name *all;
        unsigned int what;
        unsigned char *present;
        struct cg_stamps *stamps;
};

/* @name can be the first name of @rest, the remainder of a row. Only last names are patterns. */
static bool may_be(const char *rest, const char *name, size_t len)
{
        size_t n = 0;

        /* Fast path: most differ in the first two letters. */
        for (; n < 2 && rest[n] && rest[n] != '*' && rest[n] != '/'; n++)
                if ((rest[n] ^ name[n]) & ~0x20)
                        return false;
        n = strcspn(rest, "/");
        if (!rest[n] && memchr(rest, '*', n))
                return fnmatch(rest, name, FNM_CASEFOLD | FNM_PERIOD) == 0;
        return n == len && strncasecmp(rest, name, len) == 0;
}

static void set_present(const struct scan *l, size_t row, bool link)
{
        l->present[row] |= (unsigned char)((l->all[row].what & l->what) | (link ? CG_PRESENT_LINK : 0));
}

static void all_present(const struct scan *l, const size_t *rows, size_t n)
{
        for (size_t i = 0; i < n; i++)
                set_present(l, rows[i], true);
}

/*
 * @rows: indexes of rows with the same first @at bytes, which are the folder's path. @link: a part
 * of that path is a symlink.
 */
static void scan_folder(const struct scan *l, const size_t *rows, size_t n, size_t at, bool link)
{
        cg_auto_free size_t *below = calloc(n, sizeof(*below));
        const struct dirent *d;
        char path[PATH_MAX];
        cg_auto_dir DIR *dir = NULL;
        int len = snprintf(path, sizeof(path), "%s/%.*s", l->folder, (int)at, l->all[rows[0]].path);

        errno = ENOMEM;
        if (below && len > 0 && (size_t)len < sizeof(path)) {
                if (l->stamps)
                        cg_stamps_add(l->stamps, path);
                dir = opendir(path);
        }
        if (!dir) {
                if (errno != ENOENT && errno != ENOTDIR)
                        all_present(l, rows, n);
                return;
        }
        while ((errno = 0, d = readdir(dir))) {
                size_t n_below = 0, name_len = strlen(d->d_name);
                bool is_link = d->d_type == DT_LNK || d->d_type == DT_UNKNOWN, linked = link || is_link;

                for (size_t i = 0; i < n; i++) {
                        const char *rest = l->all[rows[i]].path + at;

                        if (!may_be(rest, d->d_name, name_len))
                                continue;
                        if (strchr(rest, '/'))
                                below[n_below++] = rows[i];
                        else
                                set_present(l, rows[i], linked);
                }
                /* Names that are made there later have another path. */
                if (n_below && is_link)
                        all_present(l, below, n_below);
                else if (n_below)
                        scan_folder(l, below, n_below, at + name_len + 1, linked);
        }
        if (errno) /* not all names are known */
                all_present(l, rows, n);
}

int cg_present_scan(struct cg_present *p, const char *folder, unsigned int what, struct cg_stamps *stamps,
                    struct cg_err *err)
{
        struct scan l = { .folder = folder[0] && folder[1] ? folder : "", .what = what, .stamps = stamps };
        cg_auto_free size_t *rows = NULL;
        char real[PATH_MAX];
        size_t n, n_rows = 0;

        l.all = cg_names(&n);
        rows = calloc(n, sizeof(*rows));
        cg_present_fini(p);
        p->folder = strdup(folder);
        p->rows = l.present = calloc(n, sizeof(*l.present));
        if (!rows || !p->folder || !p->rows) {
                cg_present_fini(p);
                return cg_fail(err, CG_E_NOMEM, "sandbox: names");
        }
        for (size_t i = 0; i < n; i++)
                if (l.all[i].what & what)
                        rows[n_rows++] = i;
        if (n_rows)
                scan_folder(&l, rows, n_rows, 0, !cg_real_path(folder, real) || strcmp(folder, real) != 0);
        return 0;
}

void cg_present_fini(struct cg_present *p)
{
        free(p->folder);
        free(p->rows);
        for (size_t i = 0; i < p->n_links; i++)
                free(p->links[i]);
        free(p->links);
        *p = (struct cg_present){ 0 };
}
