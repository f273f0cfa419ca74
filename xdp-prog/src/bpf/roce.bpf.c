// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
// What enters: every frame of a netdev's receive queue, before the kernel's own stack sees it.
// What leaves: RoCE v2 (UDP port 4791) to one of our addresses goes to the AF_XDP socket of that queue; everything
// else goes on to the kernel as if this program were not there.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ROCE_PORT 4791
#define MAX_VLAN_TAGS 2
#define IPV4_VERSION_IHL 0x45 // version 4, header of 5 words: no options
#define IP_MORE_OR_OFFSET 0x3fff
#define BTH_LEN 12

// One entry a receive queue; the loader sets the size to the netdev's queue count.
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

// Our addresses, in network byte order. The value says nothing: being there is what counts.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u8);
} addresses_v4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, struct in6_addr);
	__type(value, __u8);
} addresses_v6 SEC(".maps");

// The loader reads these by position: keep in step with `Counters` in counters.rs.
struct counters {
	__u64 redirected;
	__u64 passed_other;     // not UDP to port 4791, or too short to tell
	__u64 passed_fragment;  // an IPv4 fragment
	__u64 passed_options;   // an IPv4 header with options
	__u64 passed_foreign;   // port 4791, address not ours
	__u64 passed_no_socket; // ours, but the queue has no socket
	__u64 dropped_on_purpose;
	__u64 corrupted_on_purpose;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} counts SEC(".maps");

// Faults for tests, all 0 by default: then the verifier removes the code. Chances are in 1/65536; `drop_nth` drops the
// n-th frame that would have been redirected, counted from 1, once.
volatile const __u32 drop_per_64k = 0;
volatile const __u32 corrupt_per_64k = 0;
volatile const __u32 drop_nth = 0;
__u64 seen = 0;

struct vlan_tag {
	__be16 tci;
	__be16 next;
};

enum verdict { OURS, OTHER, FRAGMENT, OPTIONS, FOREIGN };

// Finds the UDP header behind the IP header and says whether the frame is ours.
static __always_inline enum verdict classify(void *p, void *end, struct udphdr **udp_out)
{
	struct ethhdr *eth = p;
	struct udphdr *udp;
	__be16 proto;
	void *address_known;

	if ((void *)(eth + 1) > end)
		return OTHER;
	proto = eth->h_proto;
	p = eth + 1;
#pragma unroll
	for (int i = 0; i < MAX_VLAN_TAGS; i++) {
		struct vlan_tag *tag = p;

		if (proto != bpf_htons(ETH_P_8021Q) && proto != bpf_htons(ETH_P_8021AD))
			break;
		if ((void *)(tag + 1) > end)
			return OTHER;
		proto = tag->next;
		p = tag + 1;
	}

	if (proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = p;

		if ((void *)(ip + 1) > end || ip->protocol != IPPROTO_UDP)
			return OTHER;
		if (*(__u8 *)ip != IPV4_VERSION_IHL)
			return OPTIONS;
		if (ip->frag_off & bpf_htons(IP_MORE_OR_OFFSET))
			return FRAGMENT;
		udp = (void *)(ip + 1);
		if ((void *)(udp + 1) > end || udp->dest != bpf_htons(ROCE_PORT))
			return OTHER;
		address_known = bpf_map_lookup_elem(&addresses_v4, &ip->daddr);
	} else if (proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip6 = p;

		if ((void *)(ip6 + 1) > end || ip6->version != 6 || ip6->nexthdr != IPPROTO_UDP)
			return OTHER;
		udp = (void *)(ip6 + 1);
		if ((void *)(udp + 1) > end || udp->dest != bpf_htons(ROCE_PORT))
			return OTHER;
		address_known = bpf_map_lookup_elem(&addresses_v6, &ip6->daddr);
	} else {
		return OTHER;
	}
	*udp_out = udp;
	return address_known ? OURS : FOREIGN;
}

// True when the frame is to be dropped.
static __always_inline int inject_faults(struct counters *count, struct udphdr *udp, void *end)
{
	if (drop_nth && __sync_fetch_and_add(&seen, 1) + 1 == drop_nth)
		return 1;
	if (drop_per_64k && (bpf_get_prandom_u32() & 0xffff) < drop_per_64k)
		return 1;
	if (corrupt_per_64k && (bpf_get_prandom_u32() & 0xffff) < corrupt_per_64k) {
		// The first byte behind the BTH: an extension header, payload or the ICRC, so that only the ICRC can tell.
		__u8 *byte = (__u8 *)(udp + 1) + BTH_LEN;

		if ((void *)(byte + 1) <= end) {
			*byte ^= 0x40;
			count->corrupted_on_purpose++;
		}
	}
	return 0;
}

static __always_inline int steer(struct xdp_md *ctx)
{
	void *p = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 queue = ctx->rx_queue_index, zero = 0;
	struct counters *count = bpf_map_lookup_elem(&counts, &zero);
	struct udphdr *udp = 0;

	if (!count)
		return XDP_PASS;
	switch (classify(p, end, &udp)) {
	case OURS:
		break;
	case OTHER:
		count->passed_other++;
		return XDP_PASS;
	case FRAGMENT:
		count->passed_fragment++;
		return XDP_PASS;
	case OPTIONS:
		count->passed_options++;
		return XDP_PASS;
	case FOREIGN:
		count->passed_foreign++;
		return XDP_PASS;
	}
	if (!udp || !bpf_map_lookup_elem(&sockets, &queue)) {
		count->passed_no_socket++;
		return XDP_PASS;
	}
	if (inject_faults(count, udp, end)) {
		count->dropped_on_purpose++;
		return XDP_DROP;
	}
	count->redirected++;
	return bpf_redirect_map(&sockets, queue, XDP_PASS);
}

// Kernels from 5.18 on let a program see frames in several pieces; older ones refuse this one and take the other.
SEC("xdp.frags") int roce_frags(struct xdp_md *ctx) { return steer(ctx); }
SEC("xdp") int roce_plain(struct xdp_md *ctx) { return steer(ctx); }

char _license[] SEC("license") = "Dual MIT/GPL";
