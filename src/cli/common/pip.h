/* pip, which runs on the host as the user: what of our environment it gets. */
#ifndef CG_CLI_COMMON_PIP_H
#define CG_CLI_COMMON_PIP_H

/*
 * Our environment without the variables that change where pip installs, or what. Its own settings
 * of index, proxy and certificates stay. Returns a list (caller frees; its strings are environ's),
 * NULL when out of memory.
 */
char **cg_pip_environment(void);

#endif
