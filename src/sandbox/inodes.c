/* See inodes.h. */
#include "sandbox/inodes.h"

#include <errno.h>
#include <fts.h>
#include <stdlib.h>

int cg_inodes_add(struct cg_inodes *set, dev_t dev, ino_t ino, struct cg_err *err)
{
        size_t n = set->n;
        struct cg_inode *v = set->v;

        if (!(n & (n - 1)))
                v = realloc(v, (2 * n + !n) * sizeof(*v));
        if (!v)
                return cg_fail(err, CG_E_NOMEM, "sandbox: hard links");
        set->v = v;
        v[set->n++] = (struct cg_inode){ dev, ino };
        return 0;
}

int cg_inodes_add_below(struct cg_inodes *set, char *const *folders)
{
        FTS *tree = fts_open(folders, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
        const FTSENT *e;
        int r = 0;

        if (!tree)
                return -1;
        while (r == 0 && (errno = 0, e = fts_read(tree)))
                if (e->fts_info == FTS_F && e->fts_statp->st_nlink > 1)
                        r = cg_inodes_add(set, e->fts_statp->st_dev, e->fts_statp->st_ino, NULL);
                else if (e->fts_info == FTS_ERR || (e->fts_info == FTS_DNR && e->fts_errno != EACCES))
                        r = -1;
        r = errno ? -1 : r;
        fts_close(tree);
        return r;
}

bool cg_inodes_has(const struct cg_inodes *set, const struct stat *st)
{
        for (size_t i = 0; i < set->n; i++)
                if (set->v[i].ino == st->st_ino && set->v[i].dev == st->st_dev)
                        return true;
        return false;
}
