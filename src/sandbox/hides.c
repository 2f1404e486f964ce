/*
 * Hides usual places of credentials: rows of names.h and a table of the system's paths. Runs in the
 * caller.
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
 * Paths of the system. An ordinary user cannot read most of them, but a sandbox that root starts
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

/* Hides what the rows of the table name in the home folder. Only last names may be patterns. */
static int hide_rows(struct cg_sandbox *sb, const char *home, struct cg_err *err)
{
        cg_auto_free bool *present = NULL;
        size_t n_rows;
        const struct cg_name *rows = cg_names(&n_rows);
        int r = cg_names_present(home, CG_NAME_HIDE, &present, err);

        for (size_t i = 0; r == 0 && i < n_rows; i++) {
                const char *slash = strrchr(rows[i].path, '/'), *last = slash ? slash + 1 : rows[i].path;
                char path[PATH_MAX], child[PATH_MAX + NAME_MAX + 1];
                const struct dirent *d;
                DIR *dir;
                int n;

                if (!present[i])
                        continue;
                n = snprintf(path, sizeof(path), "%s/%s", home, rows[i].path);
                if (n < 0 || (size_t)n >= sizeof(path))
                        return cg_fail(err, CG_E_LIMIT, "sandbox: the home folder's path is too long");
                if (!strchr(last, '*')) {
                        r = cg_plan_add_hide(sb, path, CG_WHY_CREDENTIALS, err);
                        continue;
                }
                path[(size_t)n - strlen(last)] = '\0';
                dir = opendir(path);
                while (dir && r == 0 && (d = readdir(dir))) {
                        if (fnmatch(last, d->d_name, FNM_CASEFOLD | FNM_PERIOD) != 0)
                                continue;
                        snprintf(child, sizeof(child), "%s%s", path, d->d_name);
                        r = cg_plan_add_hide(sb, child, CG_WHY_CREDENTIALS, err);
                }
                if (dir)
                        closedir(dir);
        }
        return r;
}

int cg_sandbox_add_default_hides(struct cg_sandbox *sb, const char *home, struct cg_err *err)
{
        char account[PATH_MAX];
        int r = 0;

        if (home)
                r = hide_rows(sb, home, err);
        if (r == 0 && home && cg_account_home(account) && strcmp(home, account) != 0)
                r = hide_rows(sb, account, err);
        for (size_t i = 0; r == 0 && i < CG_ARRAY_LEN(in_system); i++)
                r = cg_plan_add_hide(sb, in_system[i], CG_WHY_CREDENTIALS, err);
        return r;
}

/* ---- below the workspace */

/*
 * Limits of the search, so that a start does not become slow with the size of a project: folders
 * (the nearest first), entries, and hidden paths. What is deeper or made later can be read:
 * docs/names.md.
 */
#define FOLDERS_MAX 200
#define ENTRIES_MAX 20000
#define BELOW_MAX   200
#define ROWS_MAX    32

struct hide_search {
        struct cg_sandbox *sb;
        const struct cg_name *rows[ROWS_MAX];
        size_t n_rows;
        char *folders[FOLDERS_MAX];
        size_t n_folders, entries, found;
};

static int check_entry(struct hide_search *s, const char *folder, const struct dirent *d, struct cg_err *err)
{
        /* Folders that are not searched: dependencies and generated files. */
        static const char *const left_out[] = { "node_modules", ".git",  "__pycache__", "site-packages",
                                                ".tox",         ".venv", "venv",        ".mypy_cache" };
        char path[PATH_MAX];

        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0 ||
            (size_t)snprintf(path, sizeof(path), "%s/%s", folder, d->d_name) >= sizeof(path))
                return 0;
        for (size_t i = 0; s->found < BELOW_MAX && i < s->n_rows; i++) {
                if (cg_names_has(s->rows[i], d->d_name)) {
                        s->found++;
                        return cg_sandbox_add_hide(s->sb, path, err);
                }
        }
        if (d->d_type != DT_DIR || s->n_folders == FOLDERS_MAX)
                return 0;
        for (size_t i = 0; i < CG_ARRAY_LEN(left_out); i++) {
                if (strcmp(d->d_name, left_out[i]) == 0)
                        return 0;
        }
        s->folders[s->n_folders] = strdup(path);
        if (!s->folders[s->n_folders])
                return cg_fail(err, CG_E_NOMEM, "sandbox: hidden files");
        s->n_folders++;
        return 0;
}

int cg_sandbox_add_hides_below(struct cg_sandbox *sb, const char *workspace, struct cg_err *err)
{
        size_t n;
        const struct cg_name *rows = cg_names(&n);
        struct hide_search s = { .sb = sb };
        char real[PATH_MAX];
        int r = 0;

        if (!realpath(workspace, real))
                return cg_fail_errno(err, "sandbox: workspace %s", workspace);
        for (size_t i = 0; i < n; i++) {
                if (rows[i].what & CG_NAME_BELOW && s.n_rows < ROWS_MAX)
                        s.rows[s.n_rows++] = &rows[i];
        }
        s.folders[s.n_folders++] = strdup(real[1] ? real : "");
        for (size_t i = 0; i < s.n_folders && r == 0; i++) {
                DIR *dir = s.folders[i] ? opendir(s.folders[i][0] ? s.folders[i] : "/") : NULL;
                const struct dirent *d;

                while (dir && r == 0 && s.entries++ < ENTRIES_MAX && (d = readdir(dir)))
                        r = check_entry(&s, s.folders[i], d, err);
                if (dir)
                        closedir(dir);
        }
        while (s.n_folders)
                free(s.folders[--s.n_folders]);
        return r;
}
