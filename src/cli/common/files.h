/*
 * The files that the user names on the command line. That of --mcp has commands that run outside
 * the sandbox, and often secrets; that of --sandbox decides what the next run may do.
 * Both often are in the workspace, where cells may write: so they are hidden from cells. A file of
 * --policy (docs/policy.md) that cells can write is refused. Runs in the command `cellgate`.
 */
#pragma once

#include "sandbox/settings/settings.h"

/*
 * Opens the folder of the file @path (O_PATH), which stays the same whatever becomes of the path.
 * @name: the file's in it; a link is replaced by the file that it leads to. CG_E_INVAL: @path goes
 * through a symbolic link in @workspace, a real path; NULL: none. @make: folders that are absent
 * are made.
 */
int cg_mcp_file_folder(const char *path, const char *workspace, bool make, int *folder,
                       char name[NAME_MAX + 1], struct cg_err *err);

/*
 * *ret: the path that a session has to hide (caller frees); NULL where @path is NULL or not a
 * regular file. A path that goes through a symbolic link in the workspace is an error: cells could
 * redirect it, and the next run would start the programs of their choice. @workspace: NULL is the
 * current folder.
 */
int cg_mcp_file_find(const char *path, const char *workspace, char **ret, struct cg_err *err);

/*
 * The text of a file of --mcp (returns), checked here, so that an error has the line and column in
 * the file; a byte order mark is blank. Nothing where @path is NULL.
 */
int cg_mcp_file_read(const char *path, char **text, size_t *len, struct cg_err *err);

/* ---- --sandbox and --allow-host */

/*
 * Reads and checks it, so that a mistake is reported before anything starts, with the file's name,
 * line and column. *ret: its text, for struct cg_session_options and for the caller to free; NULL
 * where @path is NULL.
 */
int cg_settings_file_read(const char *path, char **ret, struct cg_err *err);

/*
 * Settings with the default rules for files that allow these hosts (NULL-terminated). *ret as
 * above; NULL where there is no host.
 */
int cg_settings_for_hosts(const char *const *hosts, char **ret, struct cg_err *err);

/* Bundles of settings: the first is always there, the others add to it. */
enum cg_profile {
        CG_PROFILE_BASIC = 1,
        CG_PROFILE_DATA_SCIENCE = 2,
        CG_PROFILE_NETWORK = 4,
        CG_PROFILE_FILESYSTEM = 8,
};

struct cg_profiles {
        unsigned bits;
        char variable[64]; /* "CELLGATE_PROFILES=basic network", for the kernel's import hook */
};

/* Adds the profile @name. CG_E_INVAL: there is none. */
int cg_profile_add(const char *name, struct cg_profiles *profiles, struct cg_err *err);

/*
 * Settings of these profiles. @hosts: as above, for CG_PROFILE_NETWORK. @env: the environment of
 * kernels, which stays readable; NULL: the default one. *ret as above.
 */
int cg_settings_for_profiles(unsigned profiles, const char *const *hosts, const char *env, char **ret,
                             struct cg_err *err);

/* CG_E_INVAL when @host is not valid in allowedDomains. */
int cg_settings_check_host(const char *host, struct cg_err *err);

/* ---- --policy, and other files that cells must not write */

/*
 * Reads it (*text: returns). CG_E_INVAL with the reason: cells of a session with this workspace and
 * these settings (NULL: the default ones) can write it or redirect its path. @workspace: NULL is
 * not known yet.
 */
int cg_policy_file_read(const char *path, const char *workspace, const struct cg_settings *s, char **text,
                        size_t *len, struct cg_err *err);

/* The same check of @path of another @option, "audit-key". *real: without links (returns). */
int cg_own_file_check(const char *option, const char *path, const char *workspace,
                      const struct cg_settings *s, char **real, struct cg_err *err);
/* The same check of the folder of the file @path, which may not be there yet; with links it is. */
int cg_own_folder_check(const char *option, const char *path, const char *workspace,
                        const struct cg_settings *s, struct cg_err *err);
