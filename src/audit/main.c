/*
 * cellgate-audit: the audit log of this user's sessions.
 *
 *      cellgate-audit --writer FD DIR KEY HEAD
 *                                           the writer of a supervisor, which starts it by exec
 *      cellgate-audit [COMMAND] ...         `cellgate audit`; by argv[0] also `artifacts`, `verify`
 *
 * The supervisor itself links no database, and a full or slow disk is this process's problem.
 */
#include "audit/audit.h"
#include "base/util.h"

int main(int argc, char **argv)
{
        if (argc == 6 && strcmp(argv[1], "--writer") == 0)
                return cg_audit_writer(atoi(argv[2]), argv[3], cg_text_or(argv[4], NULL), argv[5]);
        if (argc && strcmp(argv[0], "artifacts") == 0)
                return cg_audit_artifacts_command(argc, argv);
        if (argc && strcmp(argv[0], "verify") == 0)
                return cg_audit_verify_command(argc, argv);
        return cg_audit_command(argc, argv);
}
