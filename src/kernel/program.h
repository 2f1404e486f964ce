/* The zygote as a program: shared by cellgate-kernel and the extension module. */
#pragma once

#include "base/err.h"

/* Gets Python ready to import cellgate's modules from the environment @env. */
typedef int cg_start_python(const char *env, struct cg_err *err);

/* Ends the process when the supervisor has ended. */
_Noreturn void cg_kernel_program(int argc, char **argv, cg_start_python *start);
