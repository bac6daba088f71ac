/*
 * memset by plain stores. The C library's clears lines with `dcbz`, which the emulator does not report to plugins;
 * linked into the compiler, this one takes its place, and every store is in the trace.
 */
#include <stddef.h>

void *memset(void *to, int c, size_t n)
{
    unsigned char *at = to;
    unsigned long word = (unsigned char)c * 0x01010101UL;

    for (; n > 0 && ((unsigned long)at & 3) != 0; n--)
        *at++ = (unsigned char)c;
    for (; n >= 16; n -= 16, at += 16) {
        ((volatile unsigned long *)at)[0] = word;
        ((volatile unsigned long *)at)[1] = word;
        ((volatile unsigned long *)at)[2] = word;
        ((volatile unsigned long *)at)[3] = word;
    }
    for (; n > 0; n--)
        *(volatile unsigned char *)at++ = (unsigned char)c;
    return to;
}
