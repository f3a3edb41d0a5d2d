// SPDX-License-Identifier: GPL-2.0
/*
 * Accelerated IPoIB: the netdevs of an HCA whose driver has its own data path
 * (struct rdma_netdev), as mlx5 has.  ib_ipoib keeps the protocol (joins,
 * paths, neighbours); this file sends and receives.
 *
 * The rules are the same as in drivers/net/ethernet/mellanox/mlx5/core/ipoib:
 *  - The first netdev of an HCA is the parent, all others are its children.
 *  - A child looks for its parent by index, in its own network namespace, at
 *    the moment it is registered (mlx5i_parent_get).  If that namespace has no
 *    such link: EINVAL.  If it has another one, mlx5 uses foreign memory as
 *    its table of queue pairs; here that is a WARN with "BUG:" and EINVAL.
 *  - A child has at least as many RX queues as its parent uses
 *    (mlx5i_pkey_dev_init).
 *  - The parent keeps its number of channels while it has children
 *    (mlx5i_set_channels).
 *  - Children do not use receive queues of their own: packets for a child
 *    come through the parent, which must be open (mlx5i_complete_rx_cqe).
 *  - No connected mode: the driver never sets the RC bit of the hardware
 *    address.
 *
 * Invariant: a netdev is in its parent's table of queue pairs from its
 * registration until its removal begins.  It receives only while both it and
 * its parent are open.
 */
#include <linux/bitmap.h>
#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <linux/skbuff.h>
#include <linux/slab.h>
#include <linux/version.h>

#include "softib.h"

/* A netdev's queues stop when this many packets wait for the switch. */
#define SEND_QUEUE_LEN	1024
/* The length of an IPoIB hardware address: ib_ipoib's pseudo header. */
#define PSEUDO_LEN	20
/* struct ipoib_header: protocol and a reserved word. */
#define ENCAP_LEN	4

/**
 * struct accel_link - one accelerated IPoIB netdev
 * @dev: the netdev
 * @hca: its HCA
 * @parent: the netdev whose receive queues it uses; NULL for a parent
 * @is_child: set at creation, before the parent is known
 * @qpn: number of its underlay queue pair
 * @registered: whether the parent's table has it
 * @open: whether the queue pair receives
 * @pkey_index: the queue pair's P_Key index that ib_ipoib has set
 * @qp_pkey_index: the P_Key index since the queue pair was opened
 * @qkey: the Q_Key of sent packets
 * @children: number of netdevs whose @parent is this one; under RTNL
 * @peers: entry in the table of the HCA
 * @outgoing: packets that wait for the switch
 * @queued: number of packets in @outgoing
 * @send: the work that sends @outgoing
 * @lock: protects @outgoing
 */
struct accel_link {
	struct net_device *dev;
	struct softib_hca *hca;
	struct net_device *parent;
	bool is_child;
	u32 qpn;
	bool registered;
	bool open;
	u16 pkey_index;
	u16 qp_pkey_index;
	u32 qkey;
	unsigned int children;
	struct list_head peers;
	struct list_head outgoing;
	atomic_t queued;
	struct work_struct send;
	spinlock_t lock;
	atomic64_t rx_packets, rx_bytes, tx_packets, tx_bytes, tx_dropped;
};

/* The private memory of the netdev.  ib_ipoib's priv_size limits its size. */
struct accel_priv {
	struct rdma_netdev rn;
	struct accel_link *link;
};

/* The attachment of an underlay queue pair to a multicast group. */
struct membership {
	struct list_head list;
	struct accel_link *link;
	union ib_gid mgid;
};

struct packet {
	struct list_head list;
	struct softib_datagram dgram;
	u8 data[];
};

static struct accel_link *to_link(const struct net_device *dev)
{
	return ((struct accel_priv *)netdev_priv(dev))->link;
}

/* --- receive ------------------------------------------------------------ */

static void set_packet_type(struct sk_buff *skb, const struct net_device *dev,
			    const struct softib_datagram *dgram)
{
	const u8 *dgid = dgram->grh.dgid.raw;

	if (!(dgram->wc.wc_flags & IB_WC_GRH) || dgid[0] != 0xff)
		skb->pkt_type = PACKET_HOST;
	else if (!memcmp(dgid, dev->broadcast + 4, sizeof(union ib_gid)))
		skb->pkt_type = PACKET_BROADCAST;
	else
		skb->pkt_type = PACKET_MULTICAST;
}

/* Passes @dgram to the stack, with the header of ib_ipoib's packets. */
static void receive(struct accel_link *link,
		    const struct softib_datagram *dgram)
{
	struct net_device *dev = link->dev;
	struct sk_buff *skb;

	if (dgram->len < ENCAP_LEN)
		return;
	skb = netdev_alloc_skb(dev, PSEUDO_LEN + dgram->len + 8);
	if (!skb)
		return;
	skb_reserve(skb, 8);	/* so that the IP header is aligned */
	memset(skb_put(skb, PSEUDO_LEN), 0, PSEUDO_LEN);
	memcpy(skb_put(skb, dgram->len), dgram->data, dgram->len);
	skb->protocol = *(__be16 *)(skb->data + PSEUDO_LEN);
	skb_reset_mac_header(skb);
	skb_pull(skb, PSEUDO_LEN + ENCAP_LEN);
	set_packet_type(skb, dev, dgram);
	atomic64_inc(&link->rx_packets);
	atomic64_add(skb->len, &link->rx_bytes);
	netif_rx(skb);
}

/* Whether @link sent @dgram itself, to a group that it has joined. */
static bool own_echo(const struct accel_link *link,
		     const struct softib_datagram *dgram)
{
	return dgram->wc.src_qp == link->qpn &&
	       !memcmp(dgram->grh.sgid.raw, link->dev->dev_addr + 4,
		       sizeof(union ib_gid));
}

/* The caller holds the lock of the HCA's accelerated part. */
static void offer(struct accel_link *link, const struct softib_datagram *dgram)
{
	struct softib_hca *hca = link->hca;
	const struct accel_link *parent = hca->accel.parent;
	u16 pkey = READ_ONCE(hca->pkeys[link->qp_pkey_index]);

	if (!link->registered || !link->open || !parent || !parent->open) {
		hca->ibport.n_pkt_drops++;
	} else if (!softib_pkeys_match(dgram->pkey, pkey)) {
		hca->ibport.pkey_violations++;
		hca->ibport.n_pkt_drops++;
	} else if (dgram->qkey != SOFTIB_QKEY) {
		hca->ibport.qkey_violations++;
		hca->ibport.n_pkt_drops++;
	} else {
		softib_traffic_count(&hca->received, dgram->len);
		receive(link, dgram);
	}
}

/**
 * softib_accel_unicast - deliver a datagram to an underlay queue pair
 * @to: HCA of the receiver
 * @dgram: the datagram
 *
 * Return: false if @to has no underlay queue pair of that number.
 */
bool softib_accel_unicast(struct softib_hca *to,
			  const struct softib_datagram *dgram)
{
	struct accel_link *link;
	bool found = false;

	spin_lock_bh(&to->accel.lock);
	list_for_each_entry(link, &to->accel.links, peers) {
		if (link->qpn != dgram->dqpn)
			continue;
		found = true;
		offer(link, dgram);
		break;
	}
	spin_unlock_bh(&to->accel.lock);
	return found;
}

/**
 * softib_accel_multicast - deliver a datagram to the members of its group
 * @to: HCA of the receivers, which has joined the group
 * @dgram: the datagram
 */
void softib_accel_multicast(struct softib_hca *to,
			    const struct softib_datagram *dgram)
{
	struct membership *member;

	spin_lock_bh(&to->accel.lock);
	list_for_each_entry(member, &to->accel.members, list)
		if (!memcmp(&member->mgid, &dgram->grh.dgid,
			    sizeof(member->mgid)) &&
		    !own_echo(member->link, dgram))
			offer(member->link, dgram);
	spin_unlock_bh(&to->accel.lock);
}

/* --- send --------------------------------------------------------------- */

static struct packet *next_packet(struct accel_link *link)
{
	struct packet *packet;

	spin_lock_bh(&link->lock);
	packet = list_first_entry_or_null(&link->outgoing, struct packet, list);
	if (packet)
		list_del(&packet->list);
	spin_unlock_bh(&link->lock);
	if (packet)
		atomic_dec(&link->queued);
	return packet;
}

static void send_work(struct work_struct *work)
{
	struct accel_link *link = container_of(work, struct accel_link, send);
	struct packet *packet;

	while ((packet = next_packet(link))) {
		softib_datagram_carry(link->hca, &packet->dgram);
		kfree(packet);
		cond_resched();
	}
	/* A sender stops the queues before it schedules this work again. */
	if (READ_ONCE(link->open) && netif_queue_stopped(link->dev))
		netif_tx_wake_all_queues(link->dev);
}

static struct packet *make_packet(struct accel_link *link,
				  const struct sk_buff *skb, struct ib_ah *ah,
				  u32 dqpn)
{
	struct packet *packet = kzalloc(sizeof(*packet) + skb->len, GFP_ATOMIC);
	struct softib_datagram *dgram;

	if (!packet)
		return NULL;
	dgram = &packet->dgram;
	dgram->data = packet->data;
	dgram->len = skb->len;
	dgram->dqpn = dqpn;
	dgram->qkey = link->qkey;
	dgram->pkey = READ_ONCE(link->hca->pkeys[link->qp_pkey_index]);
	dgram->wc.src_qp = link->qpn;
	softib_datagram_address(link->hca, &ibah_to_rvtah(ah)->attr, dgram);
	if (skb_copy_bits(skb, 0, packet->data, skb->len)) {
		kfree(packet);
		return NULL;
	}
	return packet;
}

/* ib_ipoib may free @ah after the call, so its contents are copied. */
static int accel_send(struct net_device *dev, struct sk_buff *skb,
		      struct ib_ah *ah, u32 dqpn)
{
	struct accel_link *link = to_link(dev);
	struct packet *packet = make_packet(link, skb, ah, dqpn);

	if (packet) {
		atomic64_inc(&link->tx_packets);
		atomic64_add(skb->len, &link->tx_bytes);
		spin_lock_bh(&link->lock);
		list_add_tail(&packet->list, &link->outgoing);
		spin_unlock_bh(&link->lock);
		if (atomic_inc_return(&link->queued) >= SEND_QUEUE_LEN)
			netif_tx_stop_all_queues(dev);
		queue_work(softib_wq, &link->send);
	} else {
		atomic64_inc(&link->tx_dropped);
	}
	dev_kfree_skb_any(skb);
	return NETDEV_TX_OK;
}

/* --- groups and P_Keys -------------------------------------------------- */

static int accel_attach_mcast(struct net_device *dev, struct ib_device *ibdev,
			      union ib_gid *gid, u16 mlid, int set_qkey,
			      u32 qkey)
{
	struct membership *member = kzalloc(sizeof(*member), GFP_KERNEL);
	struct accel_link *link = to_link(dev);

	if (!member)
		return -ENOMEM;
	member->link = link;
	member->mgid = *gid;
	spin_lock_bh(&link->hca->accel.lock);
	list_add_tail(&member->list, &link->hca->accel.members);
	if (set_qkey)
		link->qkey = qkey;
	spin_unlock_bh(&link->hca->accel.lock);
	return 0;
}

/* Removes one membership of @link in @gid, or in any group if it is NULL. */
static bool drop_membership(struct accel_link *link, const union ib_gid *gid)
{
	struct membership *member, *found = NULL;

	spin_lock_bh(&link->hca->accel.lock);
	list_for_each_entry(member, &link->hca->accel.members, list) {
		if (member->link == link &&
		    (!gid || !memcmp(&member->mgid, gid, sizeof(*gid)))) {
			found = member;
			list_del(&found->list);
			break;
		}
	}
	spin_unlock_bh(&link->hca->accel.lock);
	kfree(found);
	return found;
}

static int accel_detach_mcast(struct net_device *dev, struct ib_device *ibdev,
			      union ib_gid *gid, u16 mlid)
{
	return drop_membership(to_link(dev), gid) ? 0 : -EINVAL;
}

static void accel_set_pkey_index(struct net_device *dev, int index)
{
	to_link(dev)->pkey_index = index;
}

/* --- the netdev --------------------------------------------------------- */

static int accel_open(struct net_device *dev)
{
	struct accel_link *link = to_link(dev);

	spin_lock_bh(&link->hca->accel.lock);
	link->qp_pkey_index = link->pkey_index;
	link->open = true;
	spin_unlock_bh(&link->hca->accel.lock);
	netif_tx_start_all_queues(dev);
	return 0;
}

static int accel_stop(struct net_device *dev)
{
	struct accel_link *link = to_link(dev);
	struct packet *packet;

	if (!link->open)
		return 0;
	spin_lock_bh(&link->hca->accel.lock);
	link->open = false;
	spin_unlock_bh(&link->hca->accel.lock);
	netif_carrier_off(dev);
	netif_tx_disable(dev);
	cancel_work_sync(&link->send);
	while ((packet = next_packet(link)))
		kfree(packet);
	return 0;
}

static int accel_change_mtu(struct net_device *dev, int mtu)
{
	dev->mtu = mtu;
	return 0;
}

static void accel_get_stats(struct net_device *dev,
			    struct rtnl_link_stats64 *stats)
{
	struct accel_link *link = to_link(dev);

	stats->rx_packets = atomic64_read(&link->rx_packets);
	stats->rx_bytes = atomic64_read(&link->rx_bytes);
	stats->tx_packets = atomic64_read(&link->tx_packets);
	stats->tx_bytes = atomic64_read(&link->tx_bytes);
	stats->tx_dropped = atomic64_read(&link->tx_dropped);
}

/* The hardware address names the underlay queue pair. */
static void set_address(struct accel_link *link)
{
	u8 qpn[3] = { link->qpn >> 16, link->qpn >> 8, link->qpn };

#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 15, 0)
	memcpy(link->dev->dev_addr + 1, qpn, sizeof(qpn));
#else
	dev_addr_mod(link->dev, 1, qpn, sizeof(qpn));
#endif
}

static int accel_init(struct net_device *dev)
{
	struct accel_link *link = to_link(dev);

	set_address(link);
	spin_lock_bh(&link->hca->accel.lock);
	link->registered = true;
	spin_unlock_bh(&link->hca->accel.lock);
	return 0;
}

static void accel_uninit(struct net_device *dev)
{
	struct accel_link *link = to_link(dev);

	accel_stop(dev);
	while (drop_membership(link, NULL))
		;
	spin_lock_bh(&link->hca->accel.lock);
	link->registered = false;
	spin_unlock_bh(&link->hca->accel.lock);
}

/*
 * The link that mlx5 would use as the parent, with a reference.
 *
 * Return: NULL if the namespace of @dev has no link with the parent's index,
 * or if that link is not the parent.
 */
static struct net_device *parent_get(struct accel_link *link)
{
	struct net_device *dev = link->dev, *found;
	struct accel_link *parent = link->hca->accel.parent;
	int index = dev->netdev_ops->ndo_get_iflink(dev);

	ASSERT_RTNL();
	found = dev_get_by_index(dev_net(dev), index);
	if (!found) {
		pr_warn("softib: softib%u: %s cannot have a parent: its namespace has no link with index %d\n",
			link->hca->unit, dev->name, index);
		return NULL;
	}
	if (WARN(!parent || found != parent->dev,
		 "BUG: softib%u: %s takes %s, index %d of its namespace, for its parent; mlx5 would corrupt memory\n",
		 link->hca->unit, dev->name, found->name, index)) {
		dev_put(found);
		return NULL;
	}
	return found;
}

static int child_init(struct net_device *dev)
{
	struct accel_link *link = to_link(dev);
	struct net_device *parent = parent_get(link);

	if (!parent)
		return -EINVAL;
	if (dev->num_rx_queues < parent->real_num_rx_queues) {
		pr_warn("softib: softib%u: %s has %u RX queues, fewer than the %u of its parent %s\n",
			link->hca->unit, dev->name, dev->num_rx_queues,
			parent->real_num_rx_queues, parent->name);
		dev_put(parent);
		return -EINVAL;
	}
	link->parent = parent;
	to_link(parent)->children++;
	return accel_init(dev);
}

static void child_uninit(struct net_device *dev)
{
	struct accel_link *link = to_link(dev);

	ASSERT_RTNL();
	accel_uninit(dev);
	to_link(link->parent)->children--;
	dev_put(link->parent);
	link->parent = NULL;
}

static const struct net_device_ops parent_ops = {
	.ndo_init = accel_init,
	.ndo_uninit = accel_uninit,
	.ndo_open = accel_open,
	.ndo_stop = accel_stop,
	.ndo_change_mtu = accel_change_mtu,
	.ndo_get_stats64 = accel_get_stats,
};

static const struct net_device_ops child_ops = {
	.ndo_init = child_init,
	.ndo_uninit = child_uninit,
	.ndo_open = accel_open,
	.ndo_stop = accel_stop,
	.ndo_change_mtu = accel_change_mtu,
	.ndo_get_stats64 = accel_get_stats,
};

/* --- ethtool ------------------------------------------------------------ */

/*
 * The name that mlx5 reports: programs identify the driver of a netdev by it.
 */
static void get_drvinfo(struct net_device *dev, struct ethtool_drvinfo *info)
{
	strscpy(info->driver, "mlx5_core[ib_ipoib]", sizeof(info->driver));
	strscpy(info->bus_info, dev_name(&to_link(dev)->hca->pdev->dev),
		sizeof(info->bus_info));
}

static void get_channels(struct net_device *dev, struct ethtool_channels *ch)
{
	ch->max_combined = dev->num_rx_queues;
	ch->combined_count = dev->real_num_rx_queues;
}

static int set_channels(struct net_device *dev, struct ethtool_channels *ch)
{
	struct accel_link *link = to_link(dev);

	ASSERT_RTNL();
	if (link->children) {
		pr_warn("softib: softib%u: %s has %u children and keeps its number of channels\n",
			link->hca->unit, dev->name, link->children);
		return -EINVAL;
	}
	if (!ch->combined_count)
		return -EINVAL;
	return netif_set_real_num_rx_queues(dev, ch->combined_count);
}

static int get_link_ksettings(struct net_device *dev,
			      struct ethtool_link_ksettings *settings)
{
	ethtool_link_ksettings_zero_link_mode(settings, supported);
	ethtool_link_ksettings_zero_link_mode(settings, advertising);
	settings->base.speed = READ_ONCE(to_link(dev)->hca->rate)->gbps * 1000;
	settings->base.duplex = DUPLEX_FULL;
	settings->base.port = PORT_OTHER;
	settings->base.autoneg = AUTONEG_DISABLE;
	return 0;
}

static const struct ethtool_ops parent_ethtool_ops = {
	.get_drvinfo = get_drvinfo,
	.get_channels = get_channels,
	.set_channels = set_channels,
	.get_link_ksettings = get_link_ksettings,
	.get_link = ethtool_op_get_link,
};

static const struct ethtool_ops child_ethtool_ops = {
	.get_drvinfo = get_drvinfo,
	.get_link = ethtool_op_get_link,
};

/* --- creation ----------------------------------------------------------- */

/* The last call on a netdev, before its memory is freed. */
static void accel_free(struct net_device *dev)
{
	struct accel_link *link = to_link(dev);
	struct softib_accel *accel = &link->hca->accel;

	spin_lock_bh(&accel->lock);
	list_del(&link->peers);
	clear_bit(link->qpn - SOFTIB_UNDERLAY_QPN, accel->qpns);
	if (accel->parent == link)
		accel->parent = NULL;
	spin_unlock_bh(&accel->lock);
	kfree(link);
}

/* Gives @link a queue pair of the HCA.  The first link becomes the parent. */
static int join_hca(struct accel_link *link)
{
	struct softib_accel *accel = &link->hca->accel;
	unsigned int n;

	spin_lock_bh(&accel->lock);
	n = find_first_zero_bit(accel->qpns, SOFTIB_UNDERLAY_QPS);
	if (n < SOFTIB_UNDERLAY_QPS) {
		set_bit(n, accel->qpns);
		link->qpn = SOFTIB_UNDERLAY_QPN + n;
		link->is_child = accel->parent;
		if (!link->is_child)
			accel->parent = link;
		list_add_tail(&link->peers, &accel->links);
	}
	spin_unlock_bh(&accel->lock);
	return n < SOFTIB_UNDERLAY_QPS ? 0 : -ENOSPC;
}

static struct accel_link *make_link(struct net_device *dev,
				    struct softib_hca *hca)
{
	struct accel_link *link = kzalloc(sizeof(*link), GFP_KERNEL);
	int ret;

	if (!link)
		return ERR_PTR(-ENOMEM);
	link->dev = dev;
	link->hca = hca;
	link->qkey = SOFTIB_QKEY;
	INIT_LIST_HEAD(&link->outgoing);
	INIT_WORK(&link->send, send_work);
	spin_lock_init(&link->lock);
	ret = join_hca(link);
	if (ret) {
		kfree(link);
		return ERR_PTR(ret);
	}
	return link;
}

static int accel_setup(struct ib_device *ibdev, softib_port_t port,
		       struct net_device *dev, void *param)
{
	struct accel_priv *priv = netdev_priv(dev);
	struct softib_hca *hca = param;
	struct accel_link *link = make_link(dev, hca);

	if (IS_ERR(link))
		return PTR_ERR(link);
	priv->link = link;
	netif_carrier_off(dev);
	dev->netdev_ops = link->is_child ? &child_ops : &parent_ops;
	dev->ethtool_ops = link->is_child ? &child_ethtool_ops :
					    &parent_ethtool_ops;
	priv->rn.hca = ibdev;
	priv->rn.send = accel_send;
	priv->rn.attach_mcast = accel_attach_mcast;
	priv->rn.detach_mcast = accel_detach_mcast;
	priv->rn.set_id = accel_set_pkey_index;
	dev->priv_destructor = accel_free;
	dev->needs_free_netdev = true;
	return 0;
}

/**
 * softib_accel_params - the parameters of a new IPoIB netdev for ib_core
 * @ibdev: the HCA
 * @port: its port
 * @type: the kind of netdev
 * @params: set to the parameters
 *
 * Return: 0, or -EOPNOTSUPP if ib_ipoib must use its own data path.
 */
int softib_accel_params(struct ib_device *ibdev, softib_port_t port,
			enum rdma_netdev_t type,
			struct rdma_netdev_alloc_params *params)
{
	struct softib_hca *hca = to_softib(ibdev);

	if (type != RDMA_NETDEV_IPOIB || !hca->accel.enabled)
		return -EOPNOTSUPP;
	*params = (struct rdma_netdev_alloc_params) {
		.sizeof_priv = sizeof(struct accel_priv),
		.txqs = hca->accel.queues,
		.rxqs = hca->accel.queues,
		.param = hca,
		.initialize_rdma_netdev = accel_setup,
	};
	return 0;
}

/**
 * softib_accel_init - initialise before the HCA is registered
 * @hca: the HCA
 * @enabled: whether its IPoIB netdevs are accelerated
 * @queues: their RX queues, 1 to SOFTIB_MAX_QUEUES
 */
void softib_accel_init(struct softib_hca *hca, bool enabled,
		       unsigned int queues)
{
	spin_lock_init(&hca->accel.lock);
	INIT_LIST_HEAD(&hca->accel.links);
	INIT_LIST_HEAD(&hca->accel.members);
	hca->accel.enabled = enabled;
	hca->accel.queues = queues;
}
