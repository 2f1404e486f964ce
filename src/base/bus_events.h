/*
 * Events of a supervisor for the user's programs (docs/events.md): the enum, the names, which of
 * them clients may add themselves, and the documentation, which a test compares.
 */
#pragma once

#include <stdbool.h>

#define CG_BUS_EVENTS(X) /* id  name  clients may add it  what happened */ \
        X(EXECUTION_STARTED, "execution.started", false, "a cell or command starts") \
        X(EXECUTION_COMPLETED, "execution.completed", false, "it has ended well; a command: with status 0") \
        X(EXECUTION_FAILED, "execution.failed", false, "it has failed, or was cancelled or refused") \
        X(EXECUTION_TIMEOUT, "execution.timeout", false, "it has reached its time limit") \
        X(SESSION_CREATED, "session.created", false, "a session has opened") \
        X(SESSION_KILLED, "session.killed", false, "a session has ended") \
        X(PACKAGE_INSTALLED, "package.installed", true, "packages were installed for a session") \
        X(EGRESS_REQUESTED, "egress.requested", false, "a connection waits for a decision") \
        X(EGRESS_APPROVED, "egress.approved", false, "somebody has allowed it") \
        X(EGRESS_DENIED, "egress.denied", false, "a connection was refused, or nobody allowed it") \
        X(VAULT_ACCESSED, "vault.accessed", true, "masked credentials were read for a kernel") \
        X(RESOURCE_EXCEEDED, "resource.exceeded", false, "a limit was reached") \
        X(ARTIFACT_SIGNED, "artifact.signed", true, "files of a cell were signed") \
        X(QUEUE_BACKPRESSURE, "queue.backpressure", false, "a queue was full") \
        X(APPROVAL_REQUESTED, "approval.requested", false, "a call or program waits for a decision") \
        X(APPROVAL_DECIDED, "approval.decided", false, "somebody, or a rule of its client, has decided") \
        X(APPROVAL_EXPIRED, "approval.expired", false, \
          "it waits no more: its time was over, or it was withdrawn") \
        X(TOOL_CALLED, "tool.called", false, "a tool or function runs") \
        X(TOOL_RETURNED, "tool.returned", false, "it has ended") \
        X(PROGRAM_STARTED, "program.started", false, "a program may start after a question") \
        X(PROGRAM_REFUSED, "program.refused", false, "a program was refused") \
        X(FILE_DENIED, "file.denied", false, "the sandbox refused a file") \
        X(KERNEL_DIED, "kernel.died", false, "a kernel ended by itself") \
        X(KERNEL_REPLACED, "kernel.replaced", false, "a kernel is replaced by a fresh one")

enum cg_bus_event {
#define X(id, name, adds, what) CG_BUS_##id,
        CG_BUS_EVENTS(X)
#undef X
                CG_BUS_N
};
