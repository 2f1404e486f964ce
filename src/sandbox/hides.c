/*
 * Where credentials usually lie: the rows of names.h that say so, and a table of the system's. Runs
 * in the caller.
 */
#include "sandbox/plan.h"

#include <dirent.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/proc.h"
#include "base/util.h"
#include "sandbox/present.h"

/*
 * Of the system. Most are out of an ordinary user's reach anyway; a sandbox that root starts still
 * owns them.
 */
static const char *const in_system[] = {
        "/etc/shadow",
        "/etc/shadow-",
        "/etc/gshadow",
        "/etc/gshadow-",
        "/etc/security/opasswd",
        "/etc/sudoers",
        "/etc/sudoers.d",
        "/etc/ssh/ssh_host_rsa_key",
        "/etc/ssh/ssh_host_ecdsa_key",
        "/etc/ssh/ssh_host_ed25519_key",
        "/etc/ssh/ssh_host_dsa_key",
        "/etc/ssl/private",
        "/etc/pki/tls/private",
        "/etc/letsencrypt",
        "/etc/krb5.keytab",
        "/etc/NetworkManager/system-connections",
        "/etc/wireguard",
        "/etc/openvpn",
        "/etc/ppp",
        "/etc/ipsec.secrets",
        "/etc/kubernetes",
        "/etc/rancher",
        "/etc/docker/key.json",
        "/var/lib/kubelet",
        "/var/lib/docker",
        "/var/lib/containerd",
        "/var/lib/private",
        "/var/lib/sss/secrets",
        "/var/spool/cron",
        "/var/log/journal",
        "/var/log/auth.log",
        "/var/lib/systemd/random-seed",
        "/var/backups",
};

/* One row in the home folder; a pattern is one of the last name. */
static int hide_row(struct cg_sandbox *sb, const char *home, const char *row, struct cg_err *err)
{
        const char *slash = strrchr(row, '/'), *last = slash ? slash + 1 : row;
        char path[PATH_MAX];
        const struct dirent *d;
        DIR *dir;
        int e = 0, n = snprintf(path, sizeof(path), "%s/%s", home, row);

        if (n < 0 || (size_t)n >= sizeof(path))
                return cg_fail(err, CG_E_LIMIT, "sandbox: the home folder's path is too long");
        if (!strchr(last, '*'))
                return cg_sandbox_add_hide(sb, path, err);
        path[(size_t)n - strlen(last)] = '\0';
        dir = opendir(path);
        while (dir && e == 0 && (d = readdir(dir))) {
                char child[PATH_MAX + NAME_MAX + 1];

                if (fnmatch(last, d->d_name, FNM_CASEFOLD | FNM_PERIOD) != 0)
                        continue;
                snprintf(child, sizeof(child), "%s%s", path, d->d_name);
                e = cg_sandbox_add_hide(sb, child, err);
        }
        if (dir)
                closedir(dir);
        return e;
}

static int hide_rows(struct cg_sandbox *sb, const char *home, struct cg_err *err)
{
        cg_auto_free bool *present = NULL;
        size_t n;
        const struct cg_name *rows = cg_names(&n);
        int e = cg_names_present(home, CG_NAME_HIDE, &present, err);

        for (size_t i = 0; e == 0 && i < n; i++) {
                if (present[i])
                        e = hide_row(sb, home, rows[i].path, err);
        }
        return e;
}

int cg_sandbox_add_default_hides(struct cg_sandbox *sb, const char *home, struct cg_err *err)
{
        char account[PATH_MAX];
        int e = 0;

        sb->credentials_from = sb->n_hides;
        if (home)
                e = hide_rows(sb, home, err);
        if (e == 0 && home && cg_account_home(account) && strcmp(home, account) != 0)
                e = hide_rows(sb, account, err);
        for (size_t i = 0; e == 0 && i < CG_ARRAY_LEN(in_system); i++)
                e = cg_sandbox_add_hide(sb, in_system[i], err);
        sb->credentials_to = sb->n_hides;
        return e;
}

/* ---- below the workspace */

/*
 * A start must not become slow with the size of a project: so many folders are looked through, the
 * nearest first, and so many things are hidden at most. What lies deeper, or comes later, can be
 * read: docs/names.md.
 */
#define FOLDERS_MAX 200
#define ENTRIES_MAX 20000
#define BELOW_MAX   200
#define ROWS_MAX    32
#define HIDES_LEFT  64 /* for what the session itself hides */

struct search {
        struct cg_sandbox *sb;
        const struct cg_name *rows[ROWS_MAX];
        size_t n_rows;
        char *folders[FOLDERS_MAX];
        size_t n_folders, entries, found;
};

/* Other people's, or made by programs. */
static bool is_left_out(const char *name)
{
        static const char *const names[] = { "node_modules", ".git",  "__pycache__", "site-packages",
                                             ".tox",         ".venv", "venv",        ".mypy_cache" };

        for (size_t i = 0; i < CG_ARRAY_LEN(names); i++) {
                if (!strcmp(name, names[i]))
                        return true;
        }
        return false;
}

static bool is_hidden(const struct search *s, const char *name)
{
        for (size_t i = 0; i < s->n_rows; i++) {
                if (cg_names_has(s->rows[i], name))
                        return true;
        }
        return false;
}

static int look_at(struct search *s, const char *folder, const struct dirent *d, struct cg_err *err)
{
        char path[PATH_MAX];

        if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, "..") ||
            (size_t)snprintf(path, sizeof(path), "%s/%s", folder, d->d_name) >= sizeof(path))
                return 0;
        if (s->found < BELOW_MAX && s->sb->n_hides < CG_PLAN_HIDES_MAX - HIDES_LEFT &&
            is_hidden(s, d->d_name)) {
                s->found++;
                return cg_sandbox_add_hide(s->sb, path, err);
        }
        if (d->d_type == DT_DIR && s->n_folders < FOLDERS_MAX && !is_left_out(d->d_name)) {
                s->folders[s->n_folders] = strdup(path);
                if (!s->folders[s->n_folders])
                        return cg_fail(err, CG_E_NOMEM, "sandbox: hidden files");
                s->n_folders++;
        }
        return 0;
}

int cg_sandbox_add_hides_below(struct cg_sandbox *sb, const char *workspace, struct cg_err *err)
{
        size_t n;
        const struct cg_name *rows = cg_names(&n);
        struct search s = { .sb = sb };
        char real[PATH_MAX];
        int e = 0;

        if (!realpath(workspace, real))
                return cg_fail_errno(err, "sandbox: workspace %s", workspace);
        for (size_t i = 0; i < n; i++) {
                if (rows[i].what & CG_NAME_BELOW && s.n_rows < ROWS_MAX)
                        s.rows[s.n_rows++] = &rows[i];
        }
        s.folders[s.n_folders++] = strdup(real[1] ? real : "");
        for (size_t i = 0; i < s.n_folders && e == 0; i++) {
                DIR *dir = s.folders[i] ? opendir(s.folders[i][0] ? s.folders[i] : "/") : NULL;
                const struct dirent *d;

                while (dir && e == 0 && s.entries++ < ENTRIES_MAX && (d = readdir(dir)))
                        e = look_at(&s, s.folders[i], d, err);
                if (dir)
                        closedir(dir);
        }
        while (s.n_folders)
                free(s.folders[--s.n_folders]);
        return e;
}
