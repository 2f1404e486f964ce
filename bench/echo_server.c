/*
 * The simplest MCP server over stdio, with the tool of echo_tool.h. A child of the tool server, of
 * ipybox's tool server, or of bench_api itself.
 */
#include "echo_tool.h"
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
        char *line = NULL;
        size_t size = 0;

        while (getline(&line, &size, stdin) > 0) {
                json_t *reply = reply_to(line, strlen(line));

                if (!reply)
                        continue;
                json_dumpf(reply, stdout, JSON_COMPACT);
                putchar('\n');
                fflush(stdout);
                json_decref(reply);
        }
        free(line);
        return 0;
}
