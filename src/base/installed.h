/* Paths of this installation's files. */
#pragma once

#include <limits.h>

/*
 * The path of an installed file, @path being made of the folders of config.h. In a Python wheel
 * those are relative to the folder of cellgate's programs, which the running program finds by its
 * own place. Returns @ret.
 */
const char *cg_installed(char ret[PATH_MAX], const char *path);
/* The same in storage of the caller's block. An if with its condition is a block as well. */
#define CG_INSTALLED(path) cg_installed((char[PATH_MAX]){ "" }, path)

/*
 * The same for the installation of @program, the path of one of its programs; NULL: the running
 * one. A Python interpreter that has libcellgate loaded is none of them.
 */
const char *cg_installed_with(const char *program, char ret[PATH_MAX], const char *path);

/* For the extension module of kernels, whose program is an interpreter. Before threads start. */
void cg_installed_below(const char *base);
