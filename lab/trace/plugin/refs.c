/*
 * A plugin for QEMU's user-mode emulators: every instruction fetch, load, store and system call of one thread, as
 * 64-bit words of the host's byte order, written to a file descriptor.
 *
 * It filters nothing and knows nothing of trace files: `record` of the crate `pageferry-trace` reads the words from a
 * pipe, filters them and packs them. The process that runs QEMU owns the descriptor's other end. The argument is
 * `fd=NUMBER`.
 *
 * A word: bits 63-61 kind, bits 60-57 bytes less one, bits 56-0 address.
 *     0 fetch   1 load   2 store
 *     3 system call: bits 56-0 its number; six words of arguments follow
 *     4 the call's return: one word, the result, follows
 *     5 a second thread has started: nothing follows, the trace cannot be used
 *     6 the end: without it the trace is cut off
 *
 * What can fail: writing, when nobody reads any more. The emulator is ended then. A process that the traced one forks
 * is not traced.
 *
 * Debian packages QEMU's plugin interface but not its header; what is used of version 1 of the interface is declared
 * here.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef struct qemu_info_t qemu_info_t;
enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS };
enum qemu_plugin_mem_rw { QEMU_PLUGIN_MEM_R = 1, QEMU_PLUGIN_MEM_W, QEMU_PLUGIN_MEM_RW };

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, void (*)(unsigned, void *),
                                            enum qemu_plugin_cb_flags, void *);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *,
                                      void (*)(unsigned, qemu_plugin_meminfo_t, uint64_t, void *),
                                      enum qemu_plugin_cb_flags, enum qemu_plugin_mem_rw, void *);
void qemu_plugin_register_vcpu_syscall_cb(qemu_plugin_id_t,
                                          void (*)(qemu_plugin_id_t, unsigned, int64_t, uint64_t, uint64_t, uint64_t,
                                                   uint64_t, uint64_t, uint64_t, uint64_t, uint64_t));
void qemu_plugin_register_vcpu_syscall_ret_cb(qemu_plugin_id_t,
                                              void (*)(qemu_plugin_id_t, unsigned, int64_t, int64_t));
void qemu_plugin_register_vcpu_init_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, unsigned));
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, void *), void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t);
unsigned qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t);

#define EXPORT __attribute__((visibility("default")))
EXPORT int qemu_plugin_version = 1;

enum { FETCH, LOAD, STORE, CALL, RETURN, SECOND_THREAD, END };

static uint64_t words[8192];
static size_t count;
static int out = -1;
static pid_t traced;

static void flush(void)
{
    const char *at = (const char *)words;
    size_t left = count * sizeof words[0];

    count = 0;
    if (getpid() != traced)
        return;
    while (left > 0) {
        ssize_t n = write(out, at, left);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            _exit(126);
        at += n;
        left -= (size_t)n;
    }
}

static void put(uint64_t word)
{
    if (count == sizeof words / sizeof words[0])
        flush();
    words[count++] = word;
}

static uint64_t word(uint64_t kind, uint64_t bytes, uint64_t address)
{
    return kind << 61 | ((bytes - 1) & 15) << 57 | (address & (((uint64_t)1 << 57) - 1));
}

static void executed(unsigned cpu, void *fetch)
{
    (void)cpu;
    put((uint64_t)(uintptr_t)fetch);
}

static void accessed(unsigned cpu, qemu_plugin_meminfo_t info, uint64_t address, void *unused)
{
    (void)cpu, (void)unused;
    put(word(qemu_plugin_mem_is_store(info) ? STORE : LOAD, (uint64_t)1 << qemu_plugin_mem_size_shift(info), address));
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
    (void)id;
    for (size_t i = 0, n = qemu_plugin_tb_n_insns(block); i < n; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(block, i);
        uint64_t fetch = word(FETCH, qemu_plugin_insn_size(insn), qemu_plugin_insn_vaddr(insn));
        qemu_plugin_register_vcpu_insn_exec_cb(insn, executed, QEMU_PLUGIN_CB_NO_REGS, (void *)(uintptr_t)fetch);
        qemu_plugin_register_vcpu_mem_cb(insn, accessed, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW, NULL);
    }
}

static void called(qemu_plugin_id_t id, unsigned cpu, int64_t number, uint64_t a1, uint64_t a2, uint64_t a3,
                   uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8)
{
    (void)id, (void)cpu, (void)a7, (void)a8;
    put(word(CALL, 1, (uint64_t)number));
    put(a1), put(a2), put(a3), put(a4), put(a5), put(a6);
}

static void returned(qemu_plugin_id_t id, unsigned cpu, int64_t number, int64_t result)
{
    (void)id, (void)cpu, (void)number;
    put(word(RETURN, 1, 0));
    put((uint64_t)result);
}

static void started(qemu_plugin_id_t id, unsigned cpu)
{
    (void)id;
    if (cpu > 0) {
        put(word(SECOND_THREAD, 1, 0));
        flush();
    }
}

static void ended(qemu_plugin_id_t id, void *unused)
{
    (void)id, (void)unused;
    put(word(END, 1, 0));
    flush();
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
    (void)info;
    if (argc != 1 || strncmp(argv[0], "fd=", 3) != 0) {
        fprintf(stderr, "refs: expected the argument fd=NUMBER\n");
        return -1;
    }
    int given = atoi(argv[0] + 3);
    /* Out of the traced program's way: its own descriptors are numbered as they would be without. */
    out = fcntl(given, F_DUPFD_CLOEXEC, 500);
    if (out < 0) {
        fprintf(stderr, "refs: descriptor %d: %s\n", given, strerror(errno));
        return -1;
    }
    close(given);
    traced = getpid();
    qemu_plugin_register_vcpu_init_cb(id, started);
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_vcpu_syscall_cb(id, called);
    qemu_plugin_register_vcpu_syscall_ret_cb(id, returned);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    return 0;
}
