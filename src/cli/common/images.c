/*
 * Images that cells show, saved as files. Runs in the command `cellgate`, as the user, outside the
 * sandbox: the kernel chooses the bytes of a file here, and must choose neither its name nor its
 * place.
 */
#include "cli/common/images.h"

#include <linux/openat2.h>
#include <sys/syscall.h>
#include "base/base64.h"
#include "base/fd.h"
#include "base/ceilings.h"

/* A cell that shows more images than this, or a folder that full, is a mistake. */
#define MAX_NUMBER 100000u

struct cg_images {
        char *dir; /* as given, without slashes at the end */
        /* last component of dir: points into it; NULL where that is . or .. or / */
        const char *name;
        char *folder; /* the parent folder of dir */
        int parent;   /* the same, opened */
        int fd;       /* dir itself, -1 before the first image */
        /* of the last image, and its number: so that a long cell does not try all names again */
        uint64_t cell;
        unsigned number;
};

static const struct {
        const char *mime, *extension;
        bool base64;
} kinds[] = {
        { "image/png", "png", true },
        { "image/jpeg", "jpg", true },
        { "image/svg+xml", "svg", false },
};

struct cg_images *cg_images_free(struct cg_images *im)
{
        if (!im)
                return NULL;
        if (im->parent >= 0)
                close(im->parent);
        if (im->fd >= 0)
                close(im->fd);
        free(im->dir);
        free(im->folder);
        free(im);
        return NULL;
}

static void images_freep(struct cg_images **im)
{
        cg_images_free(*im);
}

int cg_images_new(const char *dir, struct cg_images **ret, struct cg_err *err)
{
        CG_CLEANUP(images_freep) struct cg_images *im = calloc(1, sizeof(*im));
        struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC };
        size_t len = strlen(dir);
        const char *slash, *name;

        if (!im)
                return cg_fail(err, CG_E_NOMEM, "folder for images");
        im->parent = im->fd = -1;
        if (cg_asprintf(&im->dir, "folder for images", err, "%s", dir) < 0)
                return -1;
        if (!len)
                return cg_fail(err, CG_E_INVAL, "the folder for images has an empty name");
        while (len > 1 && im->dir[len - 1] == '/')
                im->dir[--len] = '\0';
        /* Its parent folder and its own name. */
        slash = strrchr(im->dir, '/');
        name = slash ? slash + 1 : im->dir;
        if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
                im->folder = strdup(im->dir); /* ".", "a/..", "/": a folder that exists */
        } else {
                im->name = name;
                if (slash)
                        im->folder = strndup(im->dir, slash == im->dir ? 1 : (size_t)(slash - im->dir));
                else
                        im->folder = strdup(".");
        }
        if (!im->folder)
                return cg_fail(err, CG_E_NOMEM, "folder for images");
        /*
         * A relative path is most likely in the workspace, where an earlier kernel may have put a
         * symbolic link in any place of it. An absolute one was written out by the user.
         */
        if (im->folder[0] != '/')
                how.resolve = RESOLVE_NO_SYMLINKS;
        im->parent = (int)syscall(SYS_openat2, AT_FDCWD, im->folder, &how, sizeof(how));
        if (im->parent < 0 && errno == ELOOP)
                return cg_fail_errno(
                        err,
                        "%s, where the folder for images is to be, leads through a symbolic link, which a cell may have "
                        "made: give its full path with --images",
                        im->folder);
        if (im->parent < 0)
                return cg_fail_errno(err, "cannot open the folder for images, %s", im->folder);
        *ret = CG_STEAL(im);
        return 0;
}

static int open_dir(struct cg_images *im, struct cg_err *err)
{
        /* Names of the types of files that can replace the folder, by S_IFMT. */
        static const char *const types[16] = {
                [S_IFLNK >> 12] = "a symbolic link",
                [S_IFIFO >> 12] = "a FIFO",
                [S_IFSOCK >> 12] = "a socket",
                [S_IFREG >> 12] = "a file",
                [S_IFDIR >> 12] = "another folder by now",
        };
        const char *name = im->name ?: ".", *type = "something else";
        struct stat st;

        /* A cell can remove the folder: then there is one more. */
        if (im->fd >= 0 && (fstat(im->fd, &st) < 0 || st.st_nlink == 0))
                cg_closep_(&im->fd);
        if (im->fd >= 0)
                return 0;
        if (im->name && mkdirat(im->parent, im->name, 0777) < 0 && errno != EEXIST)
                return cg_fail_errno(err, "cannot make the folder for images, %s", im->dir);
        im->fd = openat(im->parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (im->fd < 0 && (errno == ELOOP || errno == ENOTDIR)) {
                /* A cell can put anything there. */
                if (fstatat(im->parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
                        type = types[st.st_mode >> 12 & 15] ?: "a device";
                return cg_fail(
                        err, CG_E_SYS,
                        "%s, where images go, is %s, not a folder: remove it, or give another folder with "
                        "--images",
                        im->dir, type);
        }
        if (im->fd < 0)
                return cg_fail_errno(err, "cannot open the folder for images, %s", im->dir);
        return 0;
}

int cg_images_write(struct cg_images *im, uint64_t cell, const char *extension, const void *data, size_t len,
                    char **ret, struct cg_err *err)
{
        unsigned n = 1;
        cg_auto_fd int fd = -1;
        cg_auto_free char *path = NULL;
        char name[80];
        int r = open_dir(im, err);

        if (r < 0)
                return r;
        if (im->cell == cell)
                n = im->number + 1;
        /* The first free name for this cell. */
        for (; fd < 0 && n <= MAX_NUMBER; n++) {
                snprintf(name, sizeof(name), "cell%" PRIu64 "-%u.%s", cell, n, extension);
                fd = openat(im->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
                if (fd < 0 && errno != EEXIST)
                        return cg_fail_errno(err, "cannot make %s/%s", im->dir, name);
        }
        if (fd < 0)
                return cg_fail(err, CG_E_LIMIT, "%s holds %u images of cell %" PRIu64 " already", im->dir,
                               MAX_NUMBER, cell);
        im->cell = cell;
        im->number = n - 1;
        r = cg_asprintf(&path, "image", err, "%s/%s", im->dir, name);
        if (r == 0)
                r = cg_write_all(fd, data, len, err);
        if (r < 0) {
                unlinkat(im->fd, name, 0); /* half an image is worse than none */
                return cg_err_prefix(err, "image %s/%s", im->dir, name);
        }
        *ret = CG_STEAL(path);
        return 0;
}

static size_t kind_of(struct cg_event *e)
{
        size_t k = 0;

        while (k < CG_ARRAY_LEN(kinds) && !cg_event_mime(e, kinds[k].mime, NULL))
                k++;
        return k;
}

const char *cg_images_mime(struct cg_event *e)
{
        size_t k = kind_of(e);

        return k < CG_ARRAY_LEN(kinds) ? kinds[k].mime : NULL;
}

int cg_images_save(struct cg_images *im, struct cg_event *e, char **ret, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = CG_MAX_DISPLAY };
        size_t k = kind_of(e), len;
        const char *text;
        int r;

        if (k == CG_ARRAY_LEN(kinds))
                return cg_fail(err, CG_E_NOTFOUND, "no image");
        text = cg_event_mime(e, kinds[k].mime, &len);
        if (!kinds[k].base64)
                return cg_images_write(im, cg_event_cell(e), kinds[k].extension, text, len, ret, err);
        r = cg_base64_decode(text, len, &b, err);
        if (r < 0)
                return cg_err_prefix(err, "%s of cell %" PRIu64, kinds[k].mime, cg_event_cell(e));
        return cg_images_write(im, cg_event_cell(e), kinds[k].extension, b.data, b.len, ret, err);
}
