/* Buffers: data between two guards, filled and checked by a seeded pattern so that large ones need not travel.
 *
 * The pattern: byte p is byte p%8 (least significant first) of the 64-bit word
 *   mix(seed + (p/8 + 1) * 0x9e3779b97f4a7c15),  mix = the finalizer of splitmix64.
 * tests/src/rxe/pattern.rs has the same. */
#define _GNU_SOURCE
#include "peer.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define GUARD 4096
#define READ_MAX 65536
#define ALIGN 4096

static uint64_t word_at(uint64_t seed, uint64_t index)
{
	uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static uint8_t pattern_at(uint64_t seed, uint64_t p)
{
	return word_at(seed, p / 8) >> 8 * (p % 8);
}

static void pattern_fill(uint8_t *to, uint64_t len, uint64_t seed, uint64_t at)
{
	uint64_t i = 0;

	for (; i < len && (at + i) % 8; i++)
		to[i] = pattern_at(seed, at + i);
	for (; i + 8 <= len; i += 8) { /* whole words: eight times as quick, which emulation needs (little-endian CPUs only) */
		uint64_t word = word_at(seed, (at + i) / 8);
		memcpy(to + i, &word, 8);
	}
	for (; i < len; i++)
		to[i] = pattern_at(seed, at + i);
}

static uint8_t guard_at(const uint8_t *p)
{
	return 0xa5 ^ (uintptr_t)p;
}

void buffer_free(struct buffer *b)
{
	munmap(b->map, b->map_len);
	free(b);
}

bool memory_ours(uint64_t addr, uint64_t len)
{
	struct object *o;

	for (int i = 1; (o = object_at(i)); i++) {
		const struct buffer *b = o->p;
		if (o->kind == BUF && addr >= (uintptr_t)b->base && addr - (uintptr_t)b->base <= b->len &&
		    len <= b->len - (addr - (uintptr_t)b->base))
			return true;
	}
	return len == 0;
}

/* shift: the data starts that many bytes past a page boundary, to have it unaligned. */
int cmd_buf_alloc(const struct args *a)
{
	uint64_t len, shift = 0, seed = 0;

	if (!need_u64(a, "len", &len) || !arg_u64(a, "shift", &shift) || !arg_u64(a, "seed", &seed))
		return -1;
	if (len > 1ull << 30 || shift >= ALIGN)
		return fail(EINVAL, "buf_alloc", "len is at most 2^30, shift at most %d", ALIGN - 1);
	struct buffer *b = calloc(1, sizeof *b);
	if (!b)
		return fail(ENOMEM, "buf_alloc", "out of memory");
	b->len = len;
	b->map_len = (GUARD + shift + len + GUARD + ALIGN - 1) / ALIGN * ALIGN;
	b->map = mmap(NULL, b->map_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (b->map == MAP_FAILED) {
		free(b);
		return fail_errno("mmap");
	}
	b->base = b->map + GUARD + shift;
	for (uint8_t *p = b->map; p < b->base; p++)
		*p = guard_at(p);
	for (uint8_t *p = b->base + len; p < b->map + b->map_len; p++)
		*p = guard_at(p);
	if (arg(a, "seed", NULL))
		pattern_fill(b->base, len, seed, 0);
	reply(" buf=%d addr=0x%lx", object_new(BUF, b), (unsigned long)b->base);
	return 0;
}

/* buf= off= len= (the rest, if absent) as a piece of memory. */
static uint8_t *piece(const struct args *a, uint64_t *len)
{
	struct buffer *b = GET(a, "buf", BUF, struct buffer);
	uint64_t off = 0;

	if (!b || !arg_u64(a, "off", &off))
		return NULL;
	*len = off <= b->len ? b->len - off : 0;
	if (!arg_u64(a, "len", len))
		return NULL;
	if (off > b->len || *len > b->len - off) {
		fail(EINVAL, "off", "%lu+%lu is past the buffer's %zu bytes", off, *len, b->len);
		return NULL;
	}
	return b->base + off;
}

/* seed= and at= (where in the pattern the piece begins; its offset in the buffer, if absent) */
static bool pattern_args(const struct args *a, uint64_t *seed, uint64_t *at)
{
	*at = 0;
	return need_u64(a, "seed", seed) && arg_u64(a, "off", at) && arg_u64(a, "at", at);
}

int cmd_buf_fill(const struct args *a)
{
	uint64_t len, seed, at;
	uint8_t *p = piece(a, &len);

	if (!p || !pattern_args(a, &seed, &at))
		return -1;
	pattern_fill(p, len, seed, at);
	return 0;
}

int cmd_buf_verify(const struct args *a)
{
	uint64_t len, seed, at, bad = 0, first = 0;
	uint8_t want[4096];
	uint8_t *p = piece(a, &len);

	if (!p || !pattern_args(a, &seed, &at))
		return -1;
	for (uint64_t done = 0; done < len; done += sizeof want) {
		uint64_t n = len - done < sizeof want ? len - done : sizeof want;
		pattern_fill(want, n, seed, at + done);
		if (!memcmp(p + done, want, n))
			continue;
		for (uint64_t i = 0; i < n; i++)
			if (p[done + i] != want[i] && !bad++)
				first = done + i;
	}
	if (!bad)
		reply(" match=1");
	else
		reply(" match=0 bad=%lu first=%lu got=0x%02x want=0x%02x", bad, first, p[first], pattern_at(seed, at + first));
	return 0;
}

int cmd_buf_read(const struct args *a)
{
	uint64_t len;
	uint8_t *p = piece(a, &len);

	if (!p)
		return -1;
	if (len > READ_MAX)
		return fail(EINVAL, "len", "at most %d bytes; larger pieces are checked by seed or crc", READ_MAX);
	reply(" hex=");
	for (uint64_t i = 0; i < len; i++)
		reply("%02x", p[i]);
	return 0;
}

int cmd_buf_write(const struct args *a)
{
	uint64_t len;
	uint8_t *p = piece(a, &len);
	const char *hex = arg(a, "hex", NULL);

	if (!p)
		return -1;
	if (!hex || strlen(hex) % 2 || strlen(hex) / 2 > len)
		return fail(EINVAL, "hex", "missing, odd, or longer than the piece");
	for (len = 0; hex[2 * len]; len++) {
		uint8_t byte;
		if (sscanf(hex + 2 * len, "%2hhx", &byte) != 1)
			return fail(EINVAL, "hex", "not hexadecimal");
		p[len] = byte;
	}
	return 0;
}

/* CRC-32 as zlib, Ethernet and PNG have it. */
int cmd_buf_crc(const struct args *a)
{
	static uint32_t table[256];
	uint64_t len;
	uint8_t *p = piece(a, &len);
	uint32_t crc = 0xffffffff;

	if (!p)
		return -1;
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t c = i;
		for (int k = 0; k < 8; k++)
			c = c & 1 ? 0xedb88320 ^ c >> 1 : c >> 1;
		table[i] = c;
	}
	while (len--)
		crc = table[(crc ^ *p++) & 255] ^ crc >> 8;
	reply(" crc=0x%08x", ~crc);
	return 0;
}

int cmd_buf_guard(const struct args *a)
{
	struct buffer *b = GET(a, "buf", BUF, struct buffer);

	if (!b)
		return -1;
	for (uint8_t *p = b->map; p < b->map + b->map_len; p++) {
		if (p == b->base)
			p += b->len;
		if (p < b->map + b->map_len && *p != guard_at(p)) {
			reply(" guard=broken at=%ld got=0x%02x", (long)(p - b->base), *p);
			return 0;
		}
	}
	reply(" guard=ok");
	return 0;
}
