/* See stamps.h. */
#include "sandbox/names/stamps.h"

#include <linux/magic.h>
#include <sys/statfs.h>
#include <time.h>

/*
 * A folder that has changed within this time may change again without another time of change: the
 * coarsest clock of a file system counts two seconds.
 */
#define SETTLED_S 3

/* The part of a file's status that differs after a change. All zero: nothing is there. */
struct state {
        uint64_t ino, mount;
        uint32_t dev[2];
        struct timespec changed, modified;
};

struct cg_stamp {
        char *path;
        struct state state;
};

static void look(const char *path, struct state *ret)
{
        struct statx st;

        memset(ret, 0, sizeof(*ret)); /* compared with its padding */
        if (statx(AT_FDCWD, path, 0, STATX_BASIC_STATS | STATX_MNT_ID, &st) < 0)
                return;
        ret->ino = st.stx_ino;
        ret->mount = st.stx_mnt_id;
        ret->dev[0] = st.stx_dev_major;
        ret->dev[1] = st.stx_dev_minor;
        ret->changed = (struct timespec){ st.stx_ctime.tv_sec, st.stx_ctime.tv_nsec };
        ret->modified = (struct timespec){ st.stx_mtime.tv_sec, st.stx_mtime.tv_nsec };
}

bool cg_statfs_is_local(const struct statfs *fs)
{
        static const unsigned int types[] = { EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC,
                                              F2FS_SUPER_MAGIC, TMPFS_MAGIC,     OVERLAYFS_SUPER_MAGIC };

        for (size_t i = 0; i < CG_ARRAY_LEN(types); i++)
                if ((unsigned int)fs->f_type == types[i])
                        return true;
        return false;
}

static bool is_local(const char *path)
{
        struct statfs fs;

        return statfs(path, &fs) == 0 && cg_statfs_is_local(&fs);
}

static bool is_settled(const struct state *st)
{
        struct timespec now;

        clock_gettime(CLOCK_REALTIME, &now);
        return st->changed.tv_sec < now.tv_sec - SETTLED_S && st->modified.tv_sec < now.tv_sec - SETTLED_S;
}

void cg_stamps_add(struct cg_stamps *s, const char *path)
{
        struct cg_stamp *v = realloc(s->v, (s->n + 1) * sizeof(*v)), *new;
        bool other_mount;

        s->v = v ?: s->v;
        if (!v || !(v[s->n].path = strdup(path))) {
                s->unsure = true;
                return;
        }
        new = &v[s->n++];
        look(path, &new->state);
        if (!new->state.ino)
                return;
        other_mount = s->n == 1 || new[-1].state.mount != new->state.mount;
        if (!is_settled(&new->state) || (other_mount && !is_local(path)))
                s->unsure = true;
}

bool cg_stamps_hold(const struct cg_stamps *s)
{
        struct state now;

        for (size_t i = 0; i < s->n && !s->unsure; i++) {
                look(s->v[i].path, &now);
                if (memcmp(&now, &s->v[i].state, sizeof(now)) != 0)
                        return false;
        }
        return !s->unsure;
}

void cg_stamps_fini(struct cg_stamps *s)
{
        for (size_t i = 0; i < s->n; i++)
                free(s->v[i].path);
        free(s->v);
        *s = (struct cg_stamps){ 0 };
}
