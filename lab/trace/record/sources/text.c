/* Text: numbers written in a base, padded, with a sign. */
#include "types.h"

char *number(char *to, long value, int base, int width, int zeros)
{
	static const char digits[] = "0123456789abcdef";
	char buffer[36];
	int length = 0, negative = value < 0;
	ulong rest = negative ? -value : value;

	do {
		buffer[length++] = digits[rest % base];
		rest /= base;
	} while (rest);
	if (negative && zeros)
		*to++ = '-';
	for (width -= length + negative; width > 0; width--)
		*to++ = zeros ? '0' : ' ';
	if (negative && !zeros)
		*to++ = '-';
	while (length)
		*to++ = buffer[--length];
	*to = 0;
	return to;
}
