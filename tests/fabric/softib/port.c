// SPDX-License-Identifier: GPL-2.0
/*
 * The attributes of a port that are visible and settable while the fabric runs:
 *
 * /sys/devices/platform/softib.N/link   1 = cable in, 0 = cable out, init =
 *                                       cable in, and no subnet manager
 * /sys/devices/platform/softib.N/lid    unicast LID
 * /sys/devices/platform/softib.N/pkeys  P_Key table, 0xffff,0x8001
 * /sys/devices/platform/softib.N/rate   Gb/s
 * /sys/devices/platform/softib.N/guid   node and port GUID
 *
 * A change sends the HCA's clients the events of a real subnet manager.
 */
#include <linux/sysfs.h>

#include "softib.h"

static const struct softib_rate rates[] = {
	{ 10, IB_SPEED_SDR, IB_RATE_10_GBPS },
	{ 20, IB_SPEED_DDR, IB_RATE_20_GBPS },
	{ 40, IB_SPEED_QDR, IB_RATE_40_GBPS },
	{ 56, IB_SPEED_FDR, IB_RATE_56_GBPS },
	{ 100, IB_SPEED_EDR, IB_RATE_100_GBPS },
	{ 200, IB_SPEED_HDR, IB_RATE_200_GBPS },
	{ 400, IB_SPEED_NDR, IB_RATE_400_GBPS },
};

const struct softib_rate *softib_rate_find(unsigned int gbps)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(rates); i++)
		if (rates[i].gbps == gbps)
			return &rates[i];
	return NULL;
}

/**
 * softib_pkeys_parse - read a P_Key table
 * @text: P_Keys separated by commas; 0 leaves an entry empty
 * @len: length of @text
 * @table: SOFTIB_PKEYS entries, the rest of which become empty
 *
 * Return: 0, or -EINVAL if @text is no such list or longer than the table.
 */
int softib_pkeys_parse(const char *text, size_t len, u16 *table)
{
	char *copy = kmemdup_nul(text, len, GFP_KERNEL), *rest = copy, *word;
	u16 parsed[SOFTIB_PKEYS] = {};
	unsigned int n = 0;
	int ret = 0;

	if (!copy)
		return -ENOMEM;
	while (!ret && (word = strsep(&rest, ",")))
		ret = n < SOFTIB_PKEYS ?
			kstrtou16(strim(word), 0, &parsed[n++]) : -EINVAL;
	kfree(copy);
	if (!ret)
		memcpy(table, parsed, sizeof(parsed));
	return ret ? -EINVAL : 0;
}

/**
 * softib_pkeys_match - whether a packet with P_Key @a may reach P_Key @b
 * @a: the P_Key of the packet
 * @b: the P_Key of the receiver
 *
 * IBA 10.9.3: same partition, and not both limited members.
 */
bool softib_pkeys_match(u16 a, u16 b)
{
	return ((a ^ b) & 0x7fff) == 0 && (a & 0x7fff) && ((a | b) & 0x8000);
}

/**
 * softib_pkey_index - find the partition of @pkey in a port's table
 * @hca: the port
 * @pkey: the partition; its membership bit is ignored
 *
 * Return: the index, preferably of a full membership; -1 if there is none.
 */
int softib_pkey_index(const struct softib_hca *hca, u16 pkey)
{
	int i, limited = -1;

	for (i = 0; i < SOFTIB_PKEYS; i++) {
		u16 own = READ_ONCE(hca->pkeys[i]);

		if (!own || ((own ^ pkey) & 0x7fff))
			continue;
		if (own & 0x8000)
			return i;
		if (limited < 0)
			limited = i;
	}
	return limited;
}

void softib_port_gid(const struct softib_hca *hca, union ib_gid *gid)
{
	gid->global.subnet_prefix = hca->ibport.gid_prefix;
	gid->global.interface_id = hca->guid;
}

static void port_event(struct softib_hca *hca, enum ib_event_type type)
{
	struct ib_event event = {
		.device = &hca->rdi.ibdev,
		.element.port_num = 1,
		.event = type,
	};

	ib_dispatch_event(&event);
}

/*
 * Requests the port's clients to join again and to resolve their paths again.
 */
static void reregister(struct softib_hca *hca)
{
	port_event(hca, IB_EVENT_CLIENT_REREGISTER);
}

/**
 * softib_port_phys_state - the physical state of a port
 * @hca: the port
 *
 * Return: enum ib_port_phys_state.
 */
u8 softib_port_phys_state(const struct softib_hca *hca)
{
	return READ_ONCE(hca->state) == IB_PORT_DOWN ?
		IB_PORT_PHYS_STATE_POLLING : IB_PORT_PHYS_STATE_LINK_UP;
}

/**
 * softib_port_lid - the LID that a port reports
 * @hca: the port
 *
 * Return: before a subnet manager has configured the port, 0, and 0xffff on an
 * accelerated HCA, as mlx5 adapters report (the record of a node in
 * cni-ipoib/src/select/tests/a100/sysfs).
 */
u16 softib_port_lid(const struct softib_hca *hca)
{
	if (READ_ONCE(hca->ibport.sm_lid))
		return READ_ONCE(hca->lid);
	return hca->accel.enabled ? be16_to_cpu(IB_LID_PERMISSIVE) : 0;
}

/*
 * A subnet manager configures the port.  It forgets a port that is not ACTIVE,
 * so the clients must join again.
 */
static void activate(struct softib_hca *hca)
{
	if (!hca->ibport.sm_lid) {
		WRITE_ONCE(hca->ibport.sm_lid, SOFTIB_SM_LID);
		port_event(hca, IB_EVENT_LID_CHANGE);
	}
	WRITE_ONCE(hca->state, IB_PORT_ACTIVE);
	port_event(hca, IB_EVENT_PORT_ACTIVE);
	reregister(hca);
}

/*
 * The port loses its cable, or its link comes up without a subnet manager.
 * mlx5 reports both as an error of the port (handle_port_change() of
 * drivers/infiniband/hw/mlx5/main.c).
 */
static void deactivate(struct softib_hca *hca, enum ib_port_state state)
{
	WRITE_ONCE(hca->state, state);
	if (state == IB_PORT_INIT)
		WRITE_ONCE(hca->ibport.sm_lid, 0);
	softib_groups_drop_port(hca);
	port_event(hca, IB_EVENT_PORT_ERR);
}

/**
 * softib_port_set - change the state of a port
 * @hca: the port
 * @state: IB_PORT_DOWN, IB_PORT_INIT or IB_PORT_ACTIVE
 */
void softib_port_set(struct softib_hca *hca, enum ib_port_state state)
{
	mutex_lock(&hca->lock);
	if (state != hca->state) {
		if (state == IB_PORT_ACTIVE)
			activate(hca);
		else
			deactivate(hca, state);
	}
	mutex_unlock(&hca->lock);
}

static struct softib_hca *dev_to_softib(struct device *dev)
{
	return dev_get_drvdata(dev);
}

static ssize_t link_show(struct device *dev, struct device_attribute *attr,
			 char *buf)
{
	enum ib_port_state state = READ_ONCE(dev_to_softib(dev)->state);

	if (state == IB_PORT_INIT)
		return sysfs_emit(buf, "init\n");
	return sysfs_emit(buf, "%d\n", state == IB_PORT_ACTIVE);
}

static ssize_t link_store(struct device *dev, struct device_attribute *attr,
			  const char *buf, size_t count)
{
	enum ib_port_state state = IB_PORT_INIT;
	bool plugged;

	if (!sysfs_streq(buf, "init")) {
		int ret = kstrtobool(buf, &plugged);

		if (ret)
			return ret;
		state = plugged ? IB_PORT_ACTIVE : IB_PORT_DOWN;
	}
	softib_port_set(dev_to_softib(dev), state);
	return count;
}
static DEVICE_ATTR_RW(link);

static ssize_t lid_show(struct device *dev, struct device_attribute *attr,
			char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(dev_to_softib(dev)->lid));
}

static ssize_t lid_store(struct device *dev, struct device_attribute *attr,
			 const char *buf, size_t count)
{
	static DEFINE_MUTEX(lids);	/* two ports must not take one LID */
	struct softib_hca *hca = dev_to_softib(dev), *owner;
	u16 lid;
	int ret = kstrtou16(buf, 0, &lid);

	if (ret)
		return ret;
	if (lid < SOFTIB_FIRST_LID || lid >= be16_to_cpu(IB_MULTICAST_LID_BASE))
		return -ERANGE;
	mutex_lock(&lids);
	rcu_read_lock();
	owner = softib_by_lid(lid);
	rcu_read_unlock();
	if (!owner) {
		WRITE_ONCE(hca->lid, lid);
		softib_groups_drop_port(hca);
		port_event(hca, IB_EVENT_LID_CHANGE);
		/*
		 * The clients of all ports cache the old LID and must resolve
		 * their paths again.
		 */
		softib_for_each(reregister);
	} else if (owner != hca) {
		ret = -EEXIST;
	}
	mutex_unlock(&lids);
	return ret ?: count;
}
static DEVICE_ATTR_RW(lid);

static ssize_t pkeys_show(struct device *dev, struct device_attribute *attr,
			  char *buf)
{
	struct softib_hca *hca = dev_to_softib(dev);
	int i, last = 0, len = 0;

	for (i = 0; i < SOFTIB_PKEYS; i++)
		if (READ_ONCE(hca->pkeys[i]))
			last = i;
	for (i = 0; i <= last; i++)
		len += sysfs_emit_at(buf, len, "%s0x%04x", i ? "," : "",
				     READ_ONCE(hca->pkeys[i]));
	return len + sysfs_emit_at(buf, len, "\n");
}

static ssize_t pkeys_store(struct device *dev, struct device_attribute *attr,
			   const char *buf, size_t count)
{
	struct softib_hca *hca = dev_to_softib(dev);
	u16 table[SOFTIB_PKEYS];
	int i, ret = softib_pkeys_parse(buf, count, table);

	for (i = 0; i < SOFTIB_PKEYS && !ret; i++)
		ret = softib_partition_provide(table[i]);
	if (ret)
		return ret;
	mutex_lock(&hca->lock);
	for (i = 0; i < SOFTIB_PKEYS; i++)
		WRITE_ONCE(hca->pkeys[i], table[i]);
	softib_groups_drop_port(hca);
	port_event(hca, IB_EVENT_PKEY_CHANGE);
	reregister(hca);
	mutex_unlock(&hca->lock);
	return count;
}
static DEVICE_ATTR_RW(pkeys);

static ssize_t rate_show(struct device *dev, struct device_attribute *attr,
			 char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(dev_to_softib(dev)->rate)->gbps);
}

static ssize_t rate_store(struct device *dev, struct device_attribute *attr,
			  const char *buf, size_t count)
{
	const struct softib_rate *rate;
	unsigned int gbps;
	int ret = kstrtouint(buf, 0, &gbps);

	if (ret)
		return ret;
	rate = softib_rate_find(gbps);
	if (!rate)
		return -EINVAL;
	WRITE_ONCE(dev_to_softib(dev)->rate, rate);
	return count;
}
static DEVICE_ATTR_RW(rate);

static ssize_t guid_show(struct device *dev, struct device_attribute *attr,
			 char *buf)
{
	return sysfs_emit(buf, "0x%016llx\n",
			  be64_to_cpu(dev_to_softib(dev)->guid));
}
static DEVICE_ATTR_RO(guid);

static struct attribute *port_attrs[] = {
	&dev_attr_link.attr,
	&dev_attr_lid.attr,
	&dev_attr_pkeys.attr,
	&dev_attr_rate.attr,
	&dev_attr_guid.attr,
	NULL,
};

const struct attribute_group softib_port_group = {
	.attrs = port_attrs,
};
