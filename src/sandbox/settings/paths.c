/* Spelled paths to real ones. */
#include "sandbox/settings/paths.h"

#include "base/path.h"
#include "sandbox/mountpoints.h"

/* Appends one part to @path, or removes the last one for "..". */
static int append_part(char path[PATH_MAX], const char *part, size_t n, struct cg_err *err)
{
        size_t len = strlen(path);
        char *slash;

        if (n == 0 || (n == 1 && part[0] == '.'))
                return 0;
        if (n == 2 && part[0] == '.' && part[1] == '.') {
                slash = strrchr(path, '/');
                if (slash)
                        *slash = '\0';
                return 0;
        }
        if (len + 1 + n >= PATH_MAX)
                return cg_fail(err, CG_E_LIMIT, "path %.200s... is longer than %d bytes", path, PATH_MAX);
        path[len] = '/';
        memcpy(path + len + 1, part, n);
        path[len + 1 + n] = '\0';
        return 0;
}

static int append_parts(char path[PATH_MAX], const char *parts, struct cg_err *err)
{
        while (*parts) {
                size_t n = strcspn(parts, "/");

                if (append_part(path, parts, n, err) < 0)
                        return err ? err->code : CG_E_LIMIT;
                parts += n + (parts[n] == '/');
        }
        return 0;
}

int cg_path_absolute(const struct cg_path_base *base, const char *spelled, char ret[PATH_MAX],
                     struct cg_err *err)
{
        bool home = base->home && spelled[0] == '~' && (!spelled[1] || spelled[1] == '/');
        int r = 0;

        ret[0] = '\0';
        if (home)
                r = append_parts(ret, base->home, err);
        else if (spelled[0] != '/')
                r = append_parts(ret, base->cwd, err);
        if (r < 0 || (r = append_parts(ret, spelled + home, err)) < 0)
                return r;
        if (!ret[0])
                memcpy(ret, "/", 2);
        return 0;
}

bool cg_path_join(char ret[PATH_MAX], const char *folder, const char *name)
{
        int n = snprintf(ret, PATH_MAX, "%s/%s", cg_path_prefix(folder), name);

        return n >= 0 && n < PATH_MAX;
}

bool cg_path_is_pattern(const char *path)
{
        return strpbrk(path, "*?[") != NULL;
}

void cg_path_strip_all(char *path)
{
        size_t n = strlen(path);

        if (n >= 3 && strcmp(path + n - 3, "/**") == 0)
                path[n == 3 ? 1 : n - 3] = '\0';
}

/* Replaces the rest of the path by a link's target and the parts that follow the link. */
struct walk {
        struct cg_place *place;
        char rest[PATH_MAX];
        struct cg_err *err;
};

static int follow(struct walk *w, const char *link, const char *behind)
{
        char target[PATH_MAX], joined[PATH_MAX];
        struct cg_place *p = w->place;
        ssize_t n = readlink(link, target, sizeof(target) - 1);
        char *slash;

        if (n < 0)
                return cg_fail_errno(w->err, "%s", link);
        target[n] = '\0';
        if (p->n_links == CG_PATH_LINKS)
                return cg_fail(w->err, CG_E_LIMIT, "%s: too many symlinks, or a loop of them", link);
        p->links[p->n_links] = strdup(link);
        if (!p->links[p->n_links])
                return cg_fail(w->err, CG_E_NOMEM, "path");
        p->n_links++;
        n = snprintf(joined, sizeof(joined), "%s/%s", target, behind);
        if (n < 0 || (size_t)n >= sizeof(joined))
                return cg_fail(w->err, CG_E_LIMIT, "%s leads to a path longer than %d bytes", link, PATH_MAX);
        memcpy(w->rest, joined, (size_t)n + 1);
        slash = strrchr(p->path, '/');
        if (target[0] == '/')
                p->path[0] = '\0';
        else if (slash)
                *slash = '\0';
        return 0;
}

/* The rest does not exist: it is taken as it is spelled. */
static int end_missing(struct walk *w, size_t at, const char *behind)
{
        w->place->missing = at;
        w->place->folder = false;
        w->rest[0] = '\0';
        return append_parts(w->place->path, behind, w->err);
}

static int step(struct walk *w)
{
        struct cg_place *p = w->place;
        char part[NAME_MAX + 1], behind[PATH_MAX];
        size_t n = strcspn(w->rest, "/"), at = strlen(p->path);
        struct stat st;

        memcpy(behind, w->rest + n + (w->rest[n] == '/'), strlen(w->rest + n + (w->rest[n] == '/')) + 1);
        if (n > NAME_MAX)
                return cg_fail(w->err, CG_E_LIMIT, "a part of a path is longer than %d bytes", NAME_MAX);
        memcpy(part, w->rest, n);
        part[n] = '\0';
        if (append_part(p->path, part, n, w->err) < 0)
                return CG_E_LIMIT;
        if (strlen(p->path) <= at) { /* nothing, or one up */
                memcpy(w->rest, behind, strlen(behind) + 1);
                return 0;
        }
        if (lstat(p->path, &st) < 0) {
                /* A folder that this user may not search is out of the sandbox's reach, too. */
                if (errno != ENOENT && errno != ENOTDIR && errno != EACCES)
                        return cg_fail_errno(w->err, "%s", p->path);
                return end_missing(w, at + 1, behind);
        }
        /* The placeholder of another sandbox, which is removed when its last user ends. */
        if (cg_placeholder_is(&st))
                return end_missing(w, at + 1, behind);
        p->folder = S_ISDIR(st.st_mode);
        if (S_ISLNK(st.st_mode)) {
                p->link |= !behind[0];
                return follow(w, p->path, behind);
        }
        memcpy(w->rest, behind, strlen(behind) + 1);
        return 0;
}

int cg_place_find(const char *path, struct cg_place *ret, struct cg_err *err)
{
        struct walk w = { .place = ret, .err = err };
        size_t n = strlen(path);
        int r = 0;

        *ret = (struct cg_place){ .folder = true };
        if (n >= sizeof(w.rest))
                return cg_fail(err, CG_E_LIMIT, "path %.200s... is longer than %d bytes", path, PATH_MAX);
        memcpy(w.rest, path, n + 1);
        while (r == 0 && w.rest[0])
                r = step(&w);
        if (r < 0)
                cg_place_fini(ret);
        else if (!ret->path[0])
                memcpy(ret->path, "/", 2);
        return r;
}

int cg_place_check(const struct cg_place *place, const struct cg_path_base *base, struct cg_err *err)
{
        for (size_t i = 0; base->real && i < place->n_links; i++)
                if (cg_path_within(base->cwd, place->links[i]))
                        return cg_fail(
                                err, CG_E_STATE,
                                "sandbox: %s has become a link: %s is not the folder any more that the sandbox is for",
                                place->links[i], base->cwd);
        return 0;
}

void cg_place_fini(struct cg_place *place)
{
        for (size_t i = 0; i < place->n_links; i++)
                free(place->links[i]);
        place->n_links = 0;
}
