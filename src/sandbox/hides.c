/* Hides usual places of credentials: rows of names.h and paths of the system. In the caller. */
#include "sandbox/plan.h"

#include <fnmatch.h>

#include "base/account.h"
#include "base/path.h"
#include "sandbox/names/names.h"
#include "sandbox/names/present.h"

/* Paths of the system, most unreadable for ordinary users; a sandbox that root starts owns them. */
static const char *const in_system[] = {
        /* accounts and keys */
        "/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/security/opasswd",
        "/etc/sudoers", "/etc/sudoers.d", "/etc/ssh/ssh_host_rsa_key", "/etc/ssh/ssh_host_ecdsa_key",
        "/etc/ssh/ssh_host_ed25519_key", "/etc/ssh/ssh_host_dsa_key", "/etc/ssl/private",
        "/etc/pki/tls/private", "/etc/letsencrypt", "/etc/krb5.keytab",
        /* networks */
        "/etc/NetworkManager/system-connections", "/etc/wireguard", "/etc/openvpn", "/etc/ppp",
        "/etc/ipsec.secrets",
        /* clusters and containers */
        "/etc/kubernetes", "/etc/rancher", "/etc/docker/key.json", "/var/lib/kubelet", "/var/lib/docker",
        "/var/lib/containerd",
        /* data of services, and logs */
        "/var/lib/private", "/var/lib/sss/secrets", "/var/spool/cron", "/var/log/journal",
        "/var/log/auth.log", "/var/lib/systemd/random-seed", "/var/backups"
};

const char *cg_plan_system_credentials(const char *path)
{
        for (size_t i = 0; i < CG_ARRAY_LEN(in_system); i++)
                if (cg_path_within(path, in_system[i]))
                        return in_system[i];
        return NULL;
}

/* Hides what the rows of the table name in the home folder. Only last names may be patterns. */
static int hide_rows(struct cg_sandbox *sb, const char *home, const struct cg_present *scanned,
                     struct cg_err *err)
{
        cg_auto_present struct cg_present own = { 0 };
        const unsigned char *present = NULL;
        size_t n_rows;
        const struct cg_name *rows = cg_names(&n_rows);
        /* not in the loop: the compiler clears them there */
        char path[PATH_MAX], child[PATH_MAX + NAME_MAX + 1];
        int r = 0;

        for (size_t i = 0; scanned && i < CG_PRESENT_HOMES; i++)
                if (scanned[i].folder && strcmp(scanned[i].folder, home) == 0)
                        present = scanned[i].rows;
        if (!present) {
                r = cg_present_scan(&own, home, CG_NAME_HIDE, NULL, err);
                present = own.rows;
        }
        for (size_t i = 0; r == 0 && i < n_rows; i++) {
                const char *last;
                const struct dirent *d;
                cg_auto_dir DIR *dir = NULL;
                int n;

                if (!(present[i] & CG_NAME_HIDE))
                        continue;
                last = cg_path_base(rows[i].path);
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
        }
        return r;
}

int cg_sandbox_add_default_hides(struct cg_sandbox *sb, const char *home, const struct cg_present *scanned,
                                 struct cg_err *err)
{
        char account[PATH_MAX];
        int r;

        if (home && (r = hide_rows(sb, home, scanned, err)) < 0)
                return r;
        if (home && cg_account_home(account) && strcmp(home, account) != 0 &&
            (r = hide_rows(sb, account, scanned, err)) < 0)
                return r;
        for (size_t i = 0; i < CG_ARRAY_LEN(in_system); i++)
                if ((r = cg_plan_add_hide(sb, in_system[i], CG_WHY_CREDENTIALS, err)) < 0)
                        return r;
        return 0;
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

int cg_sandbox_add_hides_below(struct cg_sandbox *sb, const char *workspace, struct cg_err *err)
{
        /* Folders that are not searched: dependencies and generated files. */
        static const char *const left_out[] = { "node_modules", ".git",  "__pycache__", "site-packages",
                                                ".tox",         ".venv", "venv",        ".mypy_cache" };
        size_t n, n_rows = 0, n_folders = 0, entries = 0, found = 0;
        const struct cg_name *all = cg_names(&n), *rows[ROWS_MAX];
        char *folders[FOLDERS_MAX], path[PATH_MAX];
        int r = 0;

        if (!realpath(workspace, path))
                return cg_fail_errno(err, "sandbox: workspace %s", workspace);
        for (size_t i = 0; i < n && n_rows < ROWS_MAX; i++)
                if (all[i].what & CG_NAME_BELOW)
                        rows[n_rows++] = &all[i];
        folders[n_folders++] = strdup(cg_path_prefix(path));
        for (size_t i = 0; i < n_folders && r == 0; i++) {
                cg_auto_dir DIR *dir = folders[i] ? opendir(folders[i][0] ? folders[i] : "/") : NULL;
                const struct dirent *d;

                /* One that is closed now, a process inside can open. */
                if (i && !dir && errno == EACCES)
                        r = cg_sandbox_add_hide(sb, folders[i], err);
                while (dir && r == 0 && entries++ < ENTRIES_MAX && (d = readdir(dir))) {
                        bool hide = false, skip = d->d_type != DT_DIR || n_folders == FOLDERS_MAX;

                        if (cg_path_is_dots(d->d_name) ||
                            (size_t)snprintf(path, sizeof(path), "%s/%s", folders[i], d->d_name) >=
                                    sizeof(path))
                                continue;
                        for (size_t k = 0; k < n_rows && found < BELOW_MAX && !hide; k++)
                                hide = cg_names_has(rows[k], d->d_name);
                        for (size_t k = 0; k < CG_ARRAY_LEN(left_out) && !skip; k++)
                                skip = strcmp(d->d_name, left_out[k]) == 0;
                        if (hide) {
                                found++;
                                r = cg_sandbox_add_hide(sb, path, err);
                        } else if (!skip) {
                                folders[n_folders] = strdup(path);
                                if (folders[n_folders])
                                        n_folders++;
                                else
                                        r = cg_fail(err, CG_E_NOMEM, "sandbox: hidden files");
                        }
                }
        }
        while (n_folders)
                free(folders[--n_folders]);
        return r;
}
