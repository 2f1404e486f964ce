/*
 * Typed Python modules from an MCP server's tool list: the generator's interface.
 *
 * Pure: JSON text in, a folder of Python text out; no network, no process, nothing executed. Runs
 * in whichever trusted process knows the tool list (command line, host application). What it writes
 * is imported by the untrusted kernel, on top of the runtime in python_stubs/cellgate_tools.
 *
 *      OUT/NAME/__init__.py    catalogue: one line a tool; loads the modules when they are used
 *      OUT/NAME/TOOL.py        Params, Result and nested classes, run(), call(); bind() adds
 *                              run_async(), call_async(), arun(), acall()
 *      OUT/NAME/_tools.json    the original schemas and names, which decide what is valid and what
 *                              is sent
 *      OUT/__init__.py         with root_package: mcptools.search() and access to the servers'
 *                              packages
 *
 * Rules that hold for any input of a server (tests/codegen checks them):
 * - Text from the server gets into Python source only as sanitised names, docstrings and literals,
 *   through one emitter (text.h); every file is pure ASCII and importing it calls nothing but
 *   bind().
 * - Original tool and property names reach the wire byte for byte.
 * - A tool never vanishes silently: it has a module, or an entry "rejected" with the reason. One
 *   bad tool costs no other.
 * - The old package stays as it was unless the new one is complete. Nothing outside OUT is touched;
 *   symlinks in and at OUT are refused. OUT's parents must be the host's own: they are followed.
 * - Same input, same bytes; the order of the tools makes no difference.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include "base/err.h"

/* Room for any package name, with its NUL. */
#define CG_CODEGEN_PACKAGE_SIZE 72

struct cg_codegen_options {
        const char *server; /* the server's name as it is registered: what a tool call names */
        /* folder that gets the server's package OUT/NAME/; made if missing (not its parents) */
        const char *out_dir;
        /* not NULL: no tools; importing the package raises ImportError with this text */
        const char *unavailable;
        bool functions; /* of the host, not of an MCP server: they can return any value */
        /* also write OUT/__init__.py and OUT/py.typed: OUT is the `mcptools` package */
        bool root_package;
};

/*
 * cg_codegen() - generate the Python package of one server, or replace it
 * @o:          options (borrows)
 * @tools:      JSON text (borrows): a tools/list result {"tools": [...]}, a JSON-RPC answer that
 *              holds one, or a bare array of tool objects. Several pages are one array, put
 *              together by the caller. A BOM is skipped. Integers of any size, lone surrogates and
 *              \u0000 are kept.
 * @len:        its length in bytes
 * @ret_report: JSON text, ASCII, NUL-terminated (returns; free()), set only when 0: {"package":
 *              "filesystem", "tools": [{"tool": "read_file", "module": "read_file", "status":
 *              "full", "warnings": [{"pointer": "/inputSchema/properties/x", "text": "..."}]}]}, in
 *              the order of the list. "full": nothing was lost. "degraded": it works, but something
 *              is typed or checked less closely than the schema says. "rejected": no module
 *              ("module" is null); "tool" is null where even the name is unreadable. Texts and
 *              names are the server's: untrusted.
 * @err:        set when negative; may be NULL
 * Return: 0; negative, and then the old package is untouched: CG_E_INVAL (server name or out_dir),
 *         CG_E_PARSE (no tool list, or not one tool of it is JSON; line and column), CG_E_LIMIT,
 *         CG_E_EXISTS (the folder is there and is not a generated package of this server),
 *         CG_E_SYS, CG_E_NOMEM.
 * Threads: any; two calls for one OUT/NAME at a time are safe, and one of the results stays.
 */
int cg_codegen(const struct cg_codegen_options *o, const char *tools, size_t len, char **ret_report,
               struct cg_err *err);

/*
 * cg_codegen_package_name() - the Python name of a server's package
 * @server: name as registered, UTF-8
 * @buf:    gets the name, NUL-terminated: [a-z][a-z0-9_]*, no keyword, no function of the package
 *          mcptools
 * @size:   of @buf; CG_CODEGEN_PACKAGE_SIZE is always enough
 * Return: 0; CG_E_INVAL for a name that is empty, too long, not UTF-8, "." or "..", or has a slash,
 *         a backslash or a control character. Different servers can have the same package name
 *         ("a-b", "a_b"): cg_codegen() refuses the second.
 */
int cg_codegen_package_name(const char *server, char *buf, size_t size, struct cg_err *err);
