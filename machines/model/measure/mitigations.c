/* What machines/today-unmitigated.toml leaves away: sequences that Linux executes on an EPYC against speculation, from
   a user's program, in cycles of the core's clock, which is measured by a chain of additions. Each is the least of many
   short runs, so that a busy host shows less. The sequences do what those of arch/x86/lib/retpoline.S and of
   arch/x86/include/asm/nospec-branch.h do on processors of family 25.
   Build and run: cc -O2 mitigations.c && ./a.out */
#define _GNU_SOURCE
#include <cpuid.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

static double cycle_ns;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

/* The least time of one of `count` in so many runs of what follows, in nanoseconds. */
#define LEAST(result, runs, count, ...)                    \
    for (int run_ = 0; run_ < (runs); run_++) {           \
        double from_ = now();                             \
        __VA_ARGS__;                                      \
        double each_ = (now() - from_) / (count);         \
        if (run_ == 0 || each_ < (result)) result = each_; \
    }

/* A function that returns, one that returns by way of a safe RET, and a jump by register by way of a retpoline. */
__asm__(".text\n.balign 64\nplain: ret\n int3\n"
        ".balign 64\nsafe_ret: lea 8(%rsp),%rsp\n ret\n int3\n"
        ".balign 64\nthunk: call safe_ret\n ud2\n"
        ".balign 64\nguarded: jmp thunk\n int3\n"
        ".balign 64\nretpoline: call 2f\n1: pause\n lfence\n jmp 1b\n2: mov %rax,(%rsp)\n ret\n int3\n");
extern char plain[], guarded[];

/* Below the stack pointer lies what the compiler keeps there: it is skipped. */
#define CALLS(what)                                                                             \
    __asm__ volatile("sub $256,%%rsp\n.rept 20\n" what "\n.endr\nadd $256,%%rsp" ::"a"(plain) : "memory", "cc")

#define FILL "call 1f\n int3\n1:\n"

int main(void) {
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    sched_setaffinity(0, sizeof first, &first);
    unsigned a, b, c, d;
    __cpuid(1, a, b, c, d);
    printf("family %u, model %u\n", (a >> 8 & 15) + (a >> 20 & 255), (a >> 4 & 15) | (a >> 12 & 0xf0));
    uint64_t x = 1;
    LEAST(cycle_ns, 3000, 100000,
        for (int i = 0; i < 1000; i++) __asm__ volatile(".rept 100\nadd $1,%0\n.endr" : "+r"(x)));
    printf("clock: %.3f GHz\n", 1 / cycle_ns);
    double direct = 0, safe = 0, indirect = 0, guard = 0, fence = 0, fill = 0, call = 0;
    LEAST(direct, 5000, 2000, for (int i = 0; i < 100; i++) CALLS("call plain"));
    LEAST(safe, 5000, 2000, for (int i = 0; i < 100; i++) CALLS("call guarded"));
    LEAST(indirect, 5000, 2000, for (int i = 0; i < 100; i++) CALLS("call *%%rax"));
    LEAST(guard, 5000, 2000, for (int i = 0; i < 100; i++) CALLS("call retpoline"));
    LEAST(fence, 5000, 2000, for (int i = 0; i < 100; i++) CALLS("lfence"));
    LEAST(fill, 5000, 100, for (int i = 0; i < 100; i++) __asm__ volatile(
        "sub $256,%%rsp\n.rept 32\n" FILL ".endr\nadd $(8*32+256),%%rsp\nlfence" ::: "memory", "cc"));
    LEAST(call, 5000, 200, for (int i = 0; i < 200; i++) {
        long number = -1;
        __asm__ volatile("syscall" : "+a"(number)::"rcx", "r11", "memory");
    });
    printf("call and return: %.1f cycles; by safe RET %.1f\n", direct / cycle_ns, safe / cycle_ns);
    printf("call by register: %.1f cycles; by retpoline %.1f\n", indirect / cycle_ns, guard / cycle_ns);
    printf("LFENCE: %.1f cycles; filling the return stack %.0f\n", fence / cycle_ns, fill / cycle_ns);
    printf("a system call that does not exist: %.0f cycles\n", call / cycle_ns);
}
