/*
 * --config FILE: values of the command line's options from a file, from variables CELLGATE_* and
 * from the file .env beside it, so that a program has one configuration. Each key is the name of an
 * option. Runs in the command `cellgate`.
 */
#pragma once

#include <jansson.h>
#include "cli/common/cli.h"
#include "cli/common/kernel_options.h"

#define CG_CONFIG_COMMAND_LINE "the command line"

/* An option that a configuration can set, and one that it can set several times. */
bool cg_config_has(const struct cg_opt *o);
bool cg_config_is_list(const struct cg_opt *o);

/*
 * The values of the configuration, the strongest level first: {"KEY": {"from": ORIGIN, "values":
 * [TEXT]}}. KEY is an option's name; "limit NAME", "env NAME" and "policy FILE" have one value. A
 * flag's value is true; none where it is not set. @command: a bit, or more of whose options count.
 * *ret (returns) is NULL where @argv has no --config. CG_E_INVAL and CG_E_PARSE name the file and
 * the key.
 */
int cg_config_read(unsigned command, int argc, char **argv, json_t **ret, struct cg_err *err);

/*
 * Runs @run with @argv, in which the configuration's words come first. @argv stays as it is without
 * --config, and where it becomes the command line of another program, which then has --config
 * itself (jupyter install, mcp serve --print-config). Words that are there already are not added.
 * @name: for the error, "mcp serve". Return: the exit status.
 */
int cg_config_run(const char *name, enum cg_kernel_command command, int argc, char **argv, cg_cli_run_fn run);
