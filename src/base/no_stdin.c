/*
 * For the extension modules of a Python wheel, which contain Debian's static libjansson: its code
 * is for programs, so that it cannot be moved into a shared object where it uses a variable of
 * libc. The only one is stdin, for json_loadf(), which nothing here calls; the linker replaces it
 * (--wrap=stdin).
 */
#include <stdio.h>

extern FILE *__wrap_stdin;
FILE *__wrap_stdin;
