// SPDX-License-Identifier: GPL-2.0
/*
 * Multicast groups and their members.
 *
 * The IPoIB broadcast group of each partition exists from the start, like the
 * groups that an administrator configures on a real fabric.  The first full
 * member creates any other group, and the group ends with the last one.  The
 * file /sys/kernel/debug/softib/groups lists all groups.
 */
#include <linux/bitmap.h>
#include <linux/debugfs.h>
#include <linux/list.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "softib.h"

#define MLIDS 1024

/* JoinState bits, IBA 15.2.5.17. */
#define JOIN_FULL		BIT(FULLMEMBER_JOIN)
#define JOIN_NON		BIT(NONMEMBER_JOIN)
#define JOIN_SEND_ONLY_FULL	BIT(SENDONLY_FULLMEMBER_JOIN)
#define JOIN_RECEIVES		(JOIN_FULL | JOIN_NON)
#define JOIN_KEEPS_GROUP	(JOIN_FULL | JOIN_SEND_ONLY_FULL)

/* The components that a request must set to create a group. */
#define CREATE_COMPONENTS \
	(IB_SA_MCMEMBER_REC_QKEY | IB_SA_MCMEMBER_REC_PKEY | \
	 IB_SA_MCMEMBER_REC_TRAFFIC_CLASS | IB_SA_MCMEMBER_REC_SL | \
	 IB_SA_MCMEMBER_REC_FLOW_LABEL)

struct group {
	struct list_head list;
	/* The values that all members share; the fields of a port are zero. */
	struct softib_mcmember rec;
	bool permanent;
	u8 join_state[SOFTIB_MAX_HCAS];
};

static DEFINE_MUTEX(lock);
static LIST_HEAD(groups);
static DECLARE_BITMAP(mlids, MLIDS);
static unsigned int last_mlid;
static struct dentry *debugfs;

/* The switch's forwarding table: one bit per HCA, read without the lock. */
static u16 receivers[MLIDS];

u16 softib_group_receivers(u16 mlid)
{
	unsigned int i = mlid - be16_to_cpu(IB_MULTICAST_LID_BASE);

	return i < MLIDS ? READ_ONCE(receivers[i]) : 0;
}

static unsigned int mlid_index(const struct group *group)
{
	return be16_to_cpu(group->rec.mlid) -
		be16_to_cpu(IB_MULTICAST_LID_BASE);
}

static struct group *find(const union ib_gid *mgid)
{
	struct group *group;

	list_for_each_entry(group, &groups, list)
		if (!memcmp(&group->rec.mgid, mgid, sizeof(*mgid)))
			return group;
	return NULL;
}

/* The MLID after the last one, so that a released MLID stays unused long. */
static int mlid_take(__be16 *mlid)
{
	unsigned int i = find_next_zero_bit(mlids, MLIDS, last_mlid + 1);

	if (i >= MLIDS)
		i = find_first_zero_bit(mlids, MLIDS);
	if (i >= MLIDS)
		return -ENOSPC;
	__set_bit(i, mlids);
	last_mlid = i;
	*mlid = cpu_to_be16(be16_to_cpu(IB_MULTICAST_LID_BASE) + i);
	return 0;
}

static struct group *add(const struct softib_mcmember *rec, bool permanent)
{
	struct group *group = kzalloc(sizeof(*group), GFP_KERNEL);

	if (!group)
		return NULL;
	group->rec = *rec;
	group->permanent = permanent;
	if (mlid_take(&group->rec.mlid)) {
		kfree(group);
		return NULL;
	}
	list_add_tail(&group->list, &groups);
	return group;
}

static void forget(struct group *group)
{
	WRITE_ONCE(receivers[mlid_index(group)], 0);
	__clear_bit(mlid_index(group), mlids);
	list_del(&group->list);
	kfree(group);
}

static void set_join_state(struct group *group, unsigned int unit, u8 state)
{
	u16 ports = receivers[mlid_index(group)];
	unsigned int i;

	group->join_state[unit] = state;
	if (state & JOIN_RECEIVES)
		ports |= BIT(unit);
	else
		ports &= ~BIT(unit);
	WRITE_ONCE(receivers[mlid_index(group)], ports);

	if (group->permanent)
		return;
	for (i = 0; i < SOFTIB_MAX_HCAS; i++)
		if (group->join_state[i] & JOIN_KEEPS_GROUP)
			return;
	forget(group);
}

/* The SA's description of @group for @hca. */
static void describe(const struct group *group, const struct softib_hca *hca,
		     struct softib_mcmember *rec)
{
	*rec = group->rec;
	softib_port_gid(hca, &rec->port_gid);
	rec->scope_join = (group->rec.mgid.raw[1] & 0xf) << 4 |
		group->join_state[hca->unit];
}

static int mtu_weight(u8 mtu)
{
	return ib_mtu_enum_to_int(mtu);
}

static int rate_weight(u8 rate)
{
	return ib_rate_to_mbps(rate);
}

static u8 exactly(u8 value)
{
	return IB_SA_EQ << 6 | value;
}

/*
 * A value of a new group: the exact value of the request, or the port's value
 * if it satisfies the request, or 0 if it does not.
 */
static u8 choose(u8 wanted, bool given, u8 port, int (*weight)(u8 value))
{
	if (!given)
		return port;
	if (wanted >> 6 == IB_SA_EQ && weight(wanted & 0x3f) > 0 &&
	    weight(wanted & 0x3f) <= weight(port))
		return wanted & 0x3f;
	if (wanted >> 6 != IB_SA_EQ && softib_sa_selects(wanted, port, weight))
		return port;
	return 0;
}

/* If a request has no MGID, the SA assigns one of its own (IBA 15.2.5.17.2). */
static void assign_mgid(struct softib_mcmember *rec)
{
	static u32 next;

	memset(&rec->mgid, 0, sizeof(rec->mgid));
	rec->mgid.raw[0] = 0xff;
	rec->mgid.raw[1] = 0x10 | (rec->scope_join >> 4 ?: 2);
	rec->mgid.raw[2] = 0xa0;
	rec->mgid.raw[3] = 0x1b;
	*(__be32 *)&rec->mgid.raw[12] = cpu_to_be32(++next);
}

static enum softib_sa_status create(struct softib_hca *hca,
				    const struct softib_mcmember *asked,
				    ib_sa_comp_mask mask, struct group **group)
{
	struct softib_mcmember rec = *asked;

	if (!(asked->scope_join & JOIN_KEEPS_GROUP))
		return SOFTIB_SA_REQ_INVALID;
	if ((mask & CREATE_COMPONENTS) != CREATE_COMPONENTS)
		return SOFTIB_SA_INSUFFICIENT_COMPONENTS;
	rec.mtu = choose(asked->mtu, mask & IB_SA_MCMEMBER_REC_MTU,
			 softib_port_mtu, mtu_weight);
	rec.rate = choose(asked->rate, mask & IB_SA_MCMEMBER_REC_RATE,
			  hca->rate->sa, rate_weight);
	if (!rec.mtu || !rec.rate)
		return SOFTIB_SA_REQ_INVALID;
	rec.mtu = exactly(rec.mtu);
	rec.rate = exactly(rec.rate);
	rec.lifetime = exactly(SOFTIB_LIFETIME);
	rec.pkey |= cpu_to_be16(0x8000);
	if (!rec.mgid.raw[0])
		assign_mgid(&rec);
	memset(&rec.port_gid, 0, sizeof(rec.port_gid));
	rec.scope_join = 0;
	*group = add(&rec, false);
	return *group ? SOFTIB_SA_OK : SOFTIB_SA_NO_RESOURCES;
}

/* Whether a request matches the properties of an existing group. */
static bool agrees(const struct group *group, const struct softib_mcmember *rec,
		   ib_sa_comp_mask mask)
{
	const struct softib_mcmember *is = &group->rec;

	if ((mask & IB_SA_MCMEMBER_REC_QKEY) && rec->qkey != is->qkey)
		return false;
	if ((mask & IB_SA_MCMEMBER_REC_PKEY) &&
	    ((rec->pkey ^ is->pkey) & cpu_to_be16(0x7fff)))
		return false;
	if ((mask & IB_SA_MCMEMBER_REC_MTU_SELECTOR) &&
	    (mask & IB_SA_MCMEMBER_REC_MTU) &&
	    !softib_sa_selects(rec->mtu, is->mtu & 0x3f, mtu_weight))
		return false;
	return !((mask & IB_SA_MCMEMBER_REC_RATE_SELECTOR) &&
		 (mask & IB_SA_MCMEMBER_REC_RATE) &&
		 !softib_sa_selects(rec->rate, is->rate & 0x3f, rate_weight));
}

static bool port_can_join(const struct softib_hca *hca, const struct group *group)
{
	return mtu_weight(group->rec.mtu & 0x3f) <= mtu_weight(softib_port_mtu) &&
	       rate_weight(group->rec.rate & 0x3f) <= rate_weight(hca->rate->sa);
}

/* The checks of a join that need no group. */
static bool well_formed(const struct softib_hca *hca,
			const struct softib_mcmember *rec, ib_sa_comp_mask mask)
{
	static const union ib_gid none;
	union ib_gid own;

	if (rec->mgid.raw[0] != 0xff && memcmp(&rec->mgid, &none, sizeof(none)))
		return false;
	if (!(mask & IB_SA_MCMEMBER_REC_JOIN_STATE) || !(rec->scope_join & 0xf))
		return false;
	/* A port may join only for itself. */
	softib_port_gid(hca, &own);
	return !(mask & IB_SA_MCMEMBER_REC_PORT_GID) ||
	       !memcmp(&rec->port_gid, &own, sizeof(own));
}

/**
 * softib_group_join - MCMemberRecord Set: join a group, create it if needed
 * @hca: the port that joins
 * @rec: the request; becomes the group's record
 * @mask: the components of @rec that the request sets
 */
enum softib_sa_status softib_group_join(struct softib_hca *hca,
					struct softib_mcmember *rec,
					ib_sa_comp_mask mask)
{
	enum softib_sa_status status = SOFTIB_SA_OK;
	struct group *group;
	u16 pkey;

	if (!well_formed(hca, rec, mask))
		return SOFTIB_SA_REQ_INVALID;
	mutex_lock(&lock);
	group = find(&rec->mgid);
	pkey = be16_to_cpu(group ? group->rec.pkey : rec->pkey);
	if ((group || (mask & IB_SA_MCMEMBER_REC_PKEY)) &&
	    softib_pkey_index(hca, pkey) < 0) {
		status = SOFTIB_SA_REQ_INVALID;
	} else if (!group) {
		status = create(hca, rec, mask, &group);
	} else if (!agrees(group, rec, mask) || !port_can_join(hca, group)) {
		status = SOFTIB_SA_REQ_INVALID;
	}
	if (!status) {
		set_join_state(group, hca->unit, group->join_state[hca->unit] |
			       (rec->scope_join & 0xf));
		describe(group, hca, rec);
	}
	mutex_unlock(&lock);
	return status;
}

/**
 * softib_group_leave - MCMemberRecord Delete: remove join states
 * @hca: the port that leaves
 * @rec: the request; becomes the group's record
 */
enum softib_sa_status softib_group_leave(struct softib_hca *hca,
					 struct softib_mcmember *rec)
{
	enum softib_sa_status status = SOFTIB_SA_OK;
	u8 leaves = rec->scope_join & 0xf;
	struct group *group;

	mutex_lock(&lock);
	group = find(&rec->mgid);
	if (!group || !(group->join_state[hca->unit] & leaves)) {
		status = SOFTIB_SA_REQ_INVALID;
	} else {
		describe(group, hca, rec);
		rec->scope_join &= ~leaves;
		set_join_state(group, hca->unit,
			       group->join_state[hca->unit] & ~leaves);
	}
	mutex_unlock(&lock);
	return status;
}

/**
 * softib_group_get - MCMemberRecord Get: the record of a group
 * @hca: the port that sends the request
 * @rec: its MGID selects the group; becomes the group's record
 */
enum softib_sa_status softib_group_get(struct softib_hca *hca,
				       struct softib_mcmember *rec)
{
	struct group *group;

	mutex_lock(&lock);
	group = find(&rec->mgid);
	if (group)
		describe(group, hca, rec);
	mutex_unlock(&lock);
	return group ? SOFTIB_SA_OK : SOFTIB_SA_NO_RECORDS;
}

/**
 * softib_groups_drop_port - remove all memberships of a port
 * @hca: the port
 */
void softib_groups_drop_port(struct softib_hca *hca)
{
	struct group *group, *next;

	mutex_lock(&lock);
	list_for_each_entry_safe(group, next, &groups, list)
		if (group->join_state[hca->unit])
			set_join_state(group, hca->unit, 0);
	mutex_unlock(&lock);
}

/**
 * softib_partition_provide - ensure the IPoIB broadcast group of a partition
 * @pkey: the partition; 0 stands for an empty table entry and has no effect
 *
 * The MGID is the one of RFC 4391 section 4 for IPv4, with link-local scope.
 *
 * Return: 0 or a negative errno.
 */
int softib_partition_provide(u16 pkey)
{
	u16 full = pkey | 0x8000;
	struct softib_mcmember rec = {
		.mgid.raw = { 0xff, 0x12, 0x40, 0x1b, full >> 8, full & 0xff,
			      0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff },
		.qkey = cpu_to_be32(SOFTIB_QKEY),
		.pkey = cpu_to_be16(full),
		.mtu = exactly(softib_group_mtu),
		/* The lowest rate, so that every port can join. */
		.rate = exactly(IB_RATE_10_GBPS),
		.lifetime = exactly(SOFTIB_LIFETIME),
	};
	int ret = 0;

	if (!(pkey & 0x7fff))
		return 0;
	mutex_lock(&lock);
	if (!find(&rec.mgid) && !add(&rec, true))
		ret = -ENOMEM;
	mutex_unlock(&lock);
	return ret;
}

static void show_members(struct seq_file *s, const struct group *group)
{
	unsigned int i;

	for (i = 0; i < SOFTIB_MAX_HCAS; i++) {
		u8 state = group->join_state[i];

		if (!state)
			continue;
		seq_printf(s, " softib%u:%s", i,
			   state & JOIN_FULL ? "full" :
			   state & JOIN_NON ? "non" : "send-only");
	}
}

/* One line per group: MGID, MLID, P_Key, Q_Key, MTU, rate (Gb/s), members. */
static int groups_show(struct seq_file *s, void *unused)
{
	const struct group *group;

	mutex_lock(&lock);
	list_for_each_entry(group, &groups, list) {
		seq_printf(s, "%pI6 mlid 0x%04x pkey 0x%04x qkey 0x%08x mtu %d rate %d",
			   group->rec.mgid.raw, be16_to_cpu(group->rec.mlid),
			   be16_to_cpu(group->rec.pkey),
			   be32_to_cpu(group->rec.qkey),
			   mtu_weight(group->rec.mtu & 0x3f),
			   ib_rate_to_mult(group->rec.rate & 0x3f) * 5 / 2);
		show_members(s, group);
		seq_putc(s, '\n');
	}
	mutex_unlock(&lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(groups);

int softib_groups_init(void)
{
	debugfs = debugfs_create_dir("softib", NULL);
	debugfs_create_file("groups", 0444, debugfs, NULL, &groups_fops);
	return 0;
}

void softib_groups_exit(void)
{
	struct group *group, *next;

	debugfs_remove_recursive(debugfs);
	list_for_each_entry_safe(group, next, &groups, list)
		forget(group);
}
