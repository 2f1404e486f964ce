/*
 * Ceilings of the code generator. Everything it reads comes from an MCP server, which may be
 * hostile or merely careless.
 */
#pragma once

/* --- what is read --- */

/* A whole tool list. The largest real server has 0.4 MB; beyond 128 MB memory is at stake. */
#define CG_GEN_MAX_TEXT (128u << 20)
/* Tools of one server. Real ones have up to 200; each costs a file. */
#define CG_GEN_MAX_TOOLS 20000u
/* One tool definition. The largest real one is 82 kB. Its tree takes about ten times its text. */
#define CG_GEN_MAX_TOOL_TEXT (4u << 20)
/* Nesting that is read at all. Reading needs no stack, but a definition this deep has no reader. */
#define CG_GEN_MAX_READ_DEPTH 8192u
/* A tool's name travels with every call and every approval prompt. */
#define CG_GEN_MAX_TOOL_NAME 4096u
/* Digits of one number: Python refuses to read integers of more than 4300. */
#define CG_GEN_MAX_NUMBER 1000u

/* --- what is written --- */

/*
 * Nesting in _tools.json: Python's json module raises RecursionError near 1000, and IPython uses
 * some of that already.
 */
#define CG_GEN_MAX_DATA_DEPTH 200u
/* Nesting of one annotation: CPython's parser allows 200 brackets; nobody reads more than a few. */
#define CG_GEN_MAX_TYPE_DEPTH 20u
/* Objects in objects that get classes of their own. The deepest real schema has 7. */
#define CG_GEN_MAX_CLASS_DEPTH 40u
/* Classes of one tool: a class costs 14 us at import and a reader's patience. */
#define CG_GEN_MAX_CLASSES 300u
/* Fields of one class. 10,000 is absurd and works; the rest is usable by its original name. */
#define CG_GEN_MAX_FIELDS 20000u
/* Properties from branches (anyOf, allOf, if ...) of one object: each is looked up in a list. */
#define CG_GEN_MAX_MERGED 2000u
/* Schemas visited to collect one object's properties. */
#define CG_GEN_MAX_MERGE_DEPTH 16u
/* Values shown in one Literal, and their bytes; longer lists are cut into the docstring. */
#define CG_GEN_MAX_LITERAL       60u
#define CG_GEN_MAX_LITERAL_BYTES 4000u
/* Branches of one union; above that it is Any. */
#define CG_GEN_MAX_UNION 12u
/* Bytes of one annotation without its Literals: above that it is Any. */
#define CG_GEN_MAX_ANNOTATION 600u
/* $ref to $ref to $ref: followed this often. */
#define CG_GEN_MAX_REF_HOPS 64u
/* Anchors and ids of one schema: looked up in a list. */
#define CG_GEN_MAX_ANCHORS 1000u
/* Characters of a tool's and of a field's docstring. The longest real description has 6,993. */
#define CG_GEN_MAX_DOC       16384u
#define CG_GEN_MAX_FIELD_DOC 2000u
/* Characters of a tool's line in the catalogue. */
#define CG_GEN_MAX_SUMMARY 160u
/* Characters of a module, field or class name: a file name has 255 bytes, a terminal line 80. */
#define CG_GEN_MAX_NAME 60u
/* Characters of a server's name as registered. */
#define CG_GEN_MAX_SERVER_NAME 64u
/* Warnings kept for one tool. */
#define CG_GEN_MAX_WARNINGS 50u
/* One module, and a package's data file. */
#define CG_GEN_MAX_MODULE_BYTES (32u << 20)
#define CG_GEN_MAX_DATA_BYTES   (512u << 20)
/* Folders in folders when an old package is removed. */
#define CG_GEN_MAX_REMOVE_DEPTH 16u
/* Up to this many files are synced one by one, more by one syncfs(). */
#define CG_GEN_FSYNC_FILES 64u
