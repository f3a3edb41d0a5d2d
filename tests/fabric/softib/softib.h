/* SPDX-License-Identifier: GPL-2.0 */
/*
 * softib: a software InfiniBand fabric for tests.
 *
 * Every HCA has one port of link layer InfiniBand.  All ports are connected to
 * one switch inside the module, which also runs the subnet manager: it assigns
 * LIDs, answers the subnet administration (SA) queries of ports and forwards
 * packets.  rdmavt implements the verbs objects; softib moves the data.
 *
 * Invariant:
 *  - Nothing passes between two ports unless both are ACTIVE.
 *  - Nothing reaches a queue pair whose P_Key does not match the sender's
 *    (IBA 10.9.3: same 15 bits, at least one of the two a full member).
 *  - A multicast packet reaches only ports that joined its group.
 *  - A port that is not ACTIVE, or has lost a P_Key, has no memberships.
 */
#ifndef SOFTIB_H
#define SOFTIB_H

#include <linux/mutex.h>
#include <linux/platform_device.h>
#include <linux/version.h>
#include <linux/workqueue.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_sa.h>
#include <rdma/rdma_vt.h>
#include <rdma/rdmavt_qp.h>

#define SOFTIB_MAX_HCAS		16
#define SOFTIB_PKEYS		32	/* size of a port's P_Key table */
#define SOFTIB_SM_LID		1	/* the switch's own LID */
#define SOFTIB_FIRST_LID	2
#define SOFTIB_GID_PREFIX	0xfe80000000000000ULL	/* IBA 4.1.1, default */
#define SOFTIB_QKEY		0x0b1b	/* of the IPoIB groups, as OpenSM's */
#define SOFTIB_LIFETIME		18	/* 4.096 us * 2^18, as OpenSM's */
#define SOFTIB_UNDERLAY_QPN	0x700000	/* first of accelerated IPoIB */
#define SOFTIB_UNDERLAY_QPS	4096		/* a part of one page of rdmavt's bitmap */
#define SOFTIB_MAX_QUEUES	256		/* RX queues of a netdev */

/* Before Linux 5.14, ib_core numbered ports with 8 bits. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 14, 0)
typedef u8 softib_port_t;
#else
typedef u32 softib_port_t;
#endif

/* An entry of the table of supported link rates, all at width 4X. */
struct softib_rate {
	unsigned int gbps;
	u16 speed;		/* enum ib_port_speed */
	u8 sa;			/* enum ib_rate, as in SA records */
};

/* The GUIDs of an HCA, and of its port. */
struct softib_guids {
	__be64 node;
	__be64 port;
};

struct accel_link;

/**
 * struct softib_accel - an HCA's own data path for IPoIB, see accel.c
 * @enabled: whether it has one
 * @queues: RX queues of its netdevs
 * @lock: protects the fields below
 * @parent: the netdev that is the parent of the others
 * @links: all its netdevs, including the parent
 * @members: the attachments of netdevs to multicast groups
 * @qpns: the underlay queue pair numbers in use
 */
struct softib_accel {
	bool enabled;
	unsigned int queues;
	spinlock_t lock;
	struct accel_link *parent;
	struct list_head links;
	struct list_head members;
	DECLARE_BITMAP(qpns, SOFTIB_UNDERLAY_QPS);
};

/**
 * struct softib_sa_queue - a port's queries to the subnet administrator
 * @lock: protects @queries
 * @queries: in the order of their arrival
 * @work: answers the queries that are due
 */
struct softib_sa_queue {
	spinlock_t lock;
	struct list_head queries;
	struct delayed_work work;
};

struct softib_traffic {
	atomic64_t octets;
	atomic64_t packets;
};

/**
 * struct softib_hca - one host channel adapter with its port
 * @rdi: rdmavt's device; first, because rvt_alloc_device() allocates it
 * @ibport: rdmavt's port
 * @pdev: parent in sysfs, carries the attributes of port.c
 * @unit: number N of softibN
 * @guid: port GUID
 * @lock: serialises changes of state and P_Keys
 * @lid: unicast LID, which the port has once a subnet manager has configured it
 * @state: DOWN without a cable, and while softib0 keeps the port of a virtual
 *         function down; INIT with a cable and without a subnet manager; ACTIVE
 * @pkeys: P_Key table, 0 = no entry
 * @rate: link rate
 * @sent: traffic counters of the port, both directions
 * @received: see @sent
 * @sa: queries that have no answer yet
 * @accel: accelerated IPoIB
 */
struct softib_hca {
	struct rvt_dev_info rdi;
	struct rvt_ibport ibport;
	struct platform_device *pdev;
	unsigned int unit;
	__be64 guid;
	struct mutex lock;	/* state, P_Keys */
	u16 lid;
	enum ib_port_state state;
	u16 pkeys[SOFTIB_PKEYS];
	const struct softib_rate *rate;
	struct softib_traffic sent, received;
	struct softib_sa_queue sa;
	struct softib_accel accel;
};

/* One unreliable datagram in transit. */
struct softib_datagram {
	void *data;
	u32 len;
	u32 dlid;
	u32 dqpn;
	u32 qkey;
	u16 pkey;
	bool solicited;
	struct ib_grh grh;
	struct ib_wc wc;	/* what the receiver's completion says */
};

/* The send engine's part of a queue pair. */
struct softib_qp {
	struct rvt_qp *qp;
	struct work_struct work;
};

/* MCMemberRecord, IBA 15.2.5.17. */
struct softib_mcmember {
	union ib_gid mgid;
	union ib_gid port_gid;
	__be32 qkey;
	__be16 mlid;
	u8 mtu;			/* selector in the two high bits */
	u8 tclass;
	__be16 pkey;
	u8 rate;		/* selector in the two high bits */
	u8 lifetime;		/* selector in the two high bits */
	__be32 sl_flow_hop;
	u8 scope_join;		/* scope in the high nibble */
	u8 proxy;
	__be16 reserved;
} __packed;

/* PathRecord, IBA 15.2.5.16. */
struct softib_path {
	__be64 service_id;
	union ib_gid dgid;
	union ib_gid sgid;
	__be16 dlid;
	__be16 slid;
	__be32 flow_hop;
	u8 tclass;
	u8 reversible_numb;
	__be16 pkey;
	__be16 qos_sl;
	u8 mtu;			/* selector in the two high bits */
	u8 rate;		/* selector in the two high bits */
	u8 lifetime;		/* selector in the two high bits */
	u8 preference;
	u8 reserved[6];
} __packed;

/* Status of an SA response, IBA table 183; in the high byte of the MAD's. */
enum softib_sa_status {
	SOFTIB_SA_OK = 0,
	SOFTIB_SA_NO_RESOURCES = 1,
	SOFTIB_SA_REQ_INVALID = 2,
	SOFTIB_SA_NO_RECORDS = 3,
	SOFTIB_SA_INVALID_GID = 5,
	SOFTIB_SA_INSUFFICIENT_COMPONENTS = 6,
	SOFTIB_SA_DENIED = 7,
};

static inline struct softib_hca *to_softib(struct ib_device *ibdev)
{
	return container_of(ib_to_rvt(ibdev), struct softib_hca, rdi);
}

static inline struct softib_hca *rdi_to_softib(struct rvt_dev_info *rdi)
{
	return container_of(rdi, struct softib_hca, rdi);
}

/* Whether a port carries packets. */
static inline bool softib_is_active(const struct softib_hca *hca)
{
	return READ_ONCE(hca->state) == IB_PORT_ACTIVE;
}

/* module.c: parameters and the table of HCAs */
extern unsigned int softib_sa_delay;
extern struct workqueue_struct *softib_wq;
extern enum ib_mtu softib_port_mtu;
extern enum ib_mtu softib_group_mtu;
struct softib_hca *softib_by_unit(unsigned int unit);
struct softib_hca *softib_by_lid(u16 lid);
struct softib_hca *softib_by_gid(const union ib_gid *gid);
void softib_for_each(void (*fn)(struct softib_hca *hca));
int softib_function_set(const struct softib_hca *of, int function, u64 guid,
			int type);
int softib_function_state(const struct softib_hca *of, int function, int state);

/* hca.c */
struct softib_hca *softib_hca_create(struct platform_device *pdev,
				     const struct softib_guids *guids,
				     const u16 *pkeys,
				     const struct softib_rate *rate,
				     enum ib_port_state state);
int softib_hca_register(struct softib_hca *hca);
void softib_hca_unregister(struct softib_hca *hca);
void softib_hca_free(struct softib_hca *hca);

/* port.c */
extern const struct attribute_group softib_port_group;
const struct softib_rate *softib_rate_find(unsigned int gbps);
void softib_port_set(struct softib_hca *hca, enum ib_port_state state);
u8 softib_port_phys_state(const struct softib_hca *hca);
u16 softib_port_lid(const struct softib_hca *hca);
int softib_pkeys_parse(const char *text, size_t len, u16 *table);
int softib_pkey_index(const struct softib_hca *hca, u16 pkey);
bool softib_pkeys_match(u16 a, u16 b);
void softib_port_gid(const struct softib_hca *hca, union ib_gid *gid);

/* qp.c */
void softib_qp_ops(struct rvt_dev_info *rdi);

/* The result of a work request */
enum softib_verdict {
	SOFTIB_DONE,		/* complete it with the status */
	SOFTIB_LOST,		/* no acknowledge came */
	SOFTIB_RNR,		/* receiver not ready */
};

/* datagram.c, connected.c */
enum ib_wc_status softib_send_datagram(struct rvt_qp *sqp,
				       struct rvt_swqe *wqe);
void softib_traffic_count(struct softib_traffic *traffic, u32 octets);
void softib_datagram_address(struct softib_hca *from,
			     struct rdma_ah_attr *ah,
			     struct softib_datagram *dgram);
void softib_datagram_carry(struct softib_hca *from,
			   struct softib_datagram *dgram);
void softib_datagram_respond(struct softib_hca *to,
			     struct softib_datagram *dgram);
enum softib_verdict softib_send_connected(struct rvt_qp *sqp,
					  struct rvt_swqe *wqe,
					  enum ib_wc_status *status,
					  u8 *rnr_timer);

/* accel.c */
void softib_accel_init(struct softib_hca *hca, bool enabled,
		       unsigned int queues);
int softib_accel_params(struct ib_device *ibdev, softib_port_t port,
			enum rdma_netdev_t type,
			struct rdma_netdev_alloc_params *params);
bool softib_accel_unicast(struct softib_hca *to,
			  const struct softib_datagram *dgram);
void softib_accel_multicast(struct softib_hca *to,
			    const struct softib_datagram *dgram);

/* sa.c */
void softib_sa_init(struct softib_hca *hca);
void softib_sa_ask(struct softib_hca *from, struct softib_datagram *dgram);
void softib_sa_wake(struct softib_hca *hca);
void softib_sa_stop(struct softib_hca *hca);
bool softib_sa_selects(u8 selector_and_value, u8 actual,
		       int (*weight)(u8 value));

/* group.c */
int softib_groups_init(void);
void softib_groups_exit(void);
int softib_partition_provide(u16 pkey);
void softib_groups_drop_port(struct softib_hca *hca);
enum softib_sa_status softib_group_join(struct softib_hca *hca,
					struct softib_mcmember *rec,
					ib_sa_comp_mask mask);
enum softib_sa_status softib_group_leave(struct softib_hca *hca,
					 struct softib_mcmember *rec);
enum softib_sa_status softib_group_get(struct softib_hca *hca,
				       struct softib_mcmember *rec);
u16 softib_group_receivers(u16 mlid);

/* smp.c */
struct ib_smp;
void softib_smp_answer(struct softib_hca *hca, struct ib_smp *smp);

/* mad.c */
int softib_process_mad(struct ib_device *ibdev, int flags, softib_port_t port,
		       const struct ib_wc *in_wc, const struct ib_grh *in_grh,
		       const struct ib_mad *in, struct ib_mad *out,
		       size_t *out_len, u16 *pkey_index);

#endif
