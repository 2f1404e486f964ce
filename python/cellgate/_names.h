/* The binding's own function about files of the host, which libcellgate has no use for. */
#ifndef CELLGATE_NAMES_H
#define CELLGATE_NAMES_H

/*
 * Why agents may not use a file, whatever any rule says (docs/names.md): the name of a program's
 * settings (with @write) or of credentials that @path has or is below, in any folder, or the path
 * of the system's credentials; NULL: none. @path: absolute, without links, "." and "..".
 */
const char *cg_protected_name(const char *path, int write);

#endif
