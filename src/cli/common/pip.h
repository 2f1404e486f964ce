/* pip, which runs on the host as the user: what of our environment it gets. */
#pragma once

/*
 * Our environment without the variables that change where pip installs, or what. Its own settings
 * of index, proxy and certificates stay. Returns a list (caller frees; its strings are environ's),
 * NULL when out of memory.
 */
char **cg_pip_environment(void);
