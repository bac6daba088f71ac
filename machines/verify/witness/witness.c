/* A witness: a plugin of QEMU that notes which of some instructions were executed, by which CPU, in order.
 *
 * It knows nothing of the kernel but addresses, which come as arguments: `fault`, the first instruction of the page
 * fault handler; `from` and `to`, between which it notes; `command`, where the interrupt command register of the APIC
 * appears. What it notes goes to the file `out` at the end, two bytes each: a letter and the number of the CPU.
 *   i  invlpg      c  a load of CR3      f  a page fault      a  a store to the interrupt command register
 * Plugins of QEMU 7.2 cannot read registers, so it does not say which page or which root.
 *
 * Debian ships no qemu-plugin.h: what is used of it is declared here, version 1. CPUs take turns in one thread
 * (-accel tcg,thread=single), so nothing is locked. What cannot be had (memory, a file) ends QEMU with a line. */
#define _POSIX_C_SOURCE 200809L
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t plugin_id;
typedef uint32_t mem_info;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_info;
enum { NO_REGISTERS = 0, STORES = 2 };

extern void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct qemu_plugin_tb *));
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
extern const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
extern size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
extern uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
extern void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, void (*)(unsigned, void *), int, void *);
extern void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *,
                                             void (*)(unsigned, mem_info, uint64_t, void *), int, int, void *);
extern bool qemu_plugin_mem_is_store(mem_info);
extern void qemu_plugin_register_atexit_cb(plugin_id, void (*)(plugin_id, void *), void *);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

static uint64_t fault, from, to, command;
static const char *out;
static bool noting;
static unsigned char *notes;
static size_t used, room;

static void end(const char *why)
{
    fprintf(stderr, "witness: %s\n", why);
    exit(1);
}

static void note(unsigned cpu, char what)
{
    if (!noting)
        return;
    if (used + 2 > room) {
        room = room ? 2 * room : 1 << 16;
        notes = realloc(notes, room);
        if (!notes)
            end("no memory");
    }
    notes[used++] = (unsigned char)what;
    notes[used++] = (unsigned char)cpu;
}

static void executes(unsigned cpu, void *what)
{
    note(cpu, (char)(intptr_t)what);
}

static void begins(unsigned cpu, void *nothing)
{
    (void)cpu, (void)nothing;
    noting = true;
}

static void ends(unsigned cpu, void *nothing)
{
    (void)cpu, (void)nothing;
    noting = false;
}

static void accesses(unsigned cpu, mem_info info, uint64_t at, void *nothing)
{
    (void)nothing;
    /* Which accesses a callback is for is not heeded: loads come, too. */
    if (at == command && qemu_plugin_mem_is_store(info))
        note(cpu, 'a');
}

static void translates(plugin_id id, struct qemu_plugin_tb *block)
{
    size_t count = qemu_plugin_tb_n_insns(block);
    (void)id;
    for (size_t i = 0; i < count; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(block, i);
        const unsigned char *code = qemu_plugin_insn_data(insn);
        size_t size = qemu_plugin_insn_size(insn);
        uint64_t at = qemu_plugin_insn_vaddr(insn);
        void (*mark)(unsigned, void *) = at == from ? begins : at == to ? ends : NULL;
        if (mark)
            qemu_plugin_register_vcpu_insn_exec_cb(insn, mark, NO_REGISTERS, NULL);
        if (at == fault)
            qemu_plugin_register_vcpu_insn_exec_cb(insn, executes, NO_REGISTERS, (void *)(intptr_t)'f');
        if (size > 1 && (code[0] & 0xf0) == 0x40)
            code++, size--;
        if (size < 2)
            continue;
        bool has_mod = size >= 3 && code[0] == 0x0f;
        unsigned reg = has_mod ? code[2] >> 3 & 7 : 0;
        if (has_mod && code[1] == 0x01 && reg == 7 && code[2] < 0xc0)
            qemu_plugin_register_vcpu_insn_exec_cb(insn, executes, NO_REGISTERS, (void *)(intptr_t)'i');
        if (has_mod && code[1] == 0x22 && reg == 3)
            qemu_plugin_register_vcpu_insn_exec_cb(insn, executes, NO_REGISTERS, (void *)(intptr_t)'c');
        /* Stores of 32 bits. */
        if (code[0] == 0x89 || code[0] == 0xc7)
            qemu_plugin_register_vcpu_mem_cb(insn, accesses, NO_REGISTERS, STORES, NULL);
    }
}

static void writes(plugin_id id, void *nothing)
{
    (void)id, (void)nothing;
    FILE *file = fopen(out, "wb");
    if (!file || fwrite(notes, 1, used, file) != used || fclose(file)) {
        fprintf(stderr, "witness: %s cannot be written\n", out);
        _Exit(1);
    }
}

__attribute__((visibility("default"))) int
qemu_plugin_install(plugin_id id, const struct qemu_info *info, int argc, char **argv)
{
    struct { const char *name; uint64_t *to; } numbers[] = {
        {"fault=", &fault}, {"from=", &from}, {"to=", &to}, {"command=", &command},
    };
    (void)info;
    for (int i = 0; i < argc; i++) {
        if (!strncmp(argv[i], "out=", 4))
            out = strdup(argv[i] + 4);
        for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
            if (!strncmp(argv[i], numbers[n].name, strlen(numbers[n].name)))
                *numbers[n].to = strtoull(argv[i] + strlen(numbers[n].name), NULL, 0);
    }
    if (!out || !fault || !from || !to || !command) {
        fprintf(stderr, "witness: expected out=, fault=, from=, to= and command=\n");
        return -1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, translates);
    qemu_plugin_register_atexit_cb(id, writes, NULL);
    return 0;
}
