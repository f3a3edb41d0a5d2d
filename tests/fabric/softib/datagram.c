// SPDX-License-Identifier: GPL-2.0
/*
 * Datagrams: UD queue pairs, and the management queue pairs 0 and 1.
 */
#include <linux/slab.h>

#include "softib.h"

static void gather(struct rvt_swqe *wqe, u8 *to)
{
	u32 left = wqe->length;
	struct rvt_sge_state from = {
		.sge = wqe->sg_list[0],
		.sg_list = wqe->sg_list + 1,
		.num_sge = wqe->wr.num_sge,
	};

	while (left) {
		u32 len = rvt_get_sge_length(&from.sge, left);

		memcpy(to, from.sge.vaddr, len);
		rvt_update_sge(&from, len, false);
		to += len;
		left -= len;
	}
}

void softib_traffic_count(struct softib_traffic *traffic, u32 octets)
{
	atomic64_inc(&traffic->packets);
	atomic64_add(octets, &traffic->octets);
}

static void drop(struct softib_hca *hca)
{
	hca->ibport.n_pkt_drops++;
}

/*
 * Puts @dgram into the next receive buffer of @qp.  A buffer that is too small
 * stays for the next packet, because a dropped packet has no completion.
 */
static void receive(struct softib_hca *to, struct rvt_qp *qp,
		    struct softib_datagram *dgram, u16 pkey_index)
{
	struct ib_wc wc = dgram->wc;
	unsigned long flags;

	wc.byte_len = dgram->len + sizeof(dgram->grh);
	wc.qp = &qp->ibqp;
	wc.pkey_index = pkey_index;

	spin_lock_irqsave(&qp->r_lock, flags);
	if (!(ib_rvt_state_ops[qp->state] & RVT_PROCESS_RECV_OK))
		goto dropped;
	if (qp->r_flags & RVT_R_REUSE_SGE)
		qp->r_flags &= ~RVT_R_REUSE_SGE;
	else if (rvt_get_rwqe(qp, false) <= 0)
		goto dropped;
	if (wc.byte_len > qp->r_len) {
		qp->r_flags |= RVT_R_REUSE_SGE;
		goto dropped;
	}
	rvt_copy_sge(qp, &qp->r_sge, &dgram->grh, sizeof(dgram->grh), true,
		     false);
	rvt_copy_sge(qp, &qp->r_sge, dgram->data, dgram->len, true, false);
	rvt_put_ss(&qp->r_sge);
	if (test_and_clear_bit(RVT_R_WRID_VALID, &qp->r_aflags)) {
		wc.wr_id = qp->r_wr_id;
		rvt_recv_cq(qp, &wc, dgram->solicited);
	}
	softib_traffic_count(&to->received, dgram->len);
	spin_unlock_irqrestore(&qp->r_lock, flags);
	return;

dropped:
	drop(to);
	spin_unlock_irqrestore(&qp->r_lock, flags);
}

/*
 * The index of the P_Key by which @qp accepts a packet with @pkey, or -1.  QP 1
 * accepts a match with any entry of the table, other queue pairs only a match
 * with their own entry (IBA 10.9.3).  QP 0 has no P_Key.
 */
static int matching_pkey(const struct softib_hca *to, const struct rvt_qp *qp,
			 u16 pkey)
{
	int i;

	switch (qp->ibqp.qp_type) {
	case IB_QPT_SMI:
		return 0;
	case IB_QPT_GSI:
		for (i = 0; i < SOFTIB_PKEYS; i++)
			if (softib_pkeys_match(pkey, READ_ONCE(to->pkeys[i])))
				return i;
		return -1;
	default:
		i = qp->s_pkey_index;
		return softib_pkeys_match(pkey, READ_ONCE(to->pkeys[i])) ? i : -1;
	}
}

static void offer(struct softib_hca *to, struct rvt_qp *qp,
		  struct softib_datagram *dgram)
{
	int index = matching_pkey(to, qp, dgram->pkey);

	if (index < 0) {
		to->ibport.pkey_violations++;
		drop(to);
	} else if (qp->ibqp.qp_type != IB_QPT_SMI && qp->qkey != dgram->qkey) {
		to->ibport.qkey_violations++;
		drop(to);
	} else {
		receive(to, qp, dgram, index);
	}
}

static void deliver_multicast(struct softib_datagram *dgram)
{
	unsigned long units = softib_group_receivers(dgram->dlid);
	unsigned int unit;

	for_each_set_bit(unit, &units, SOFTIB_MAX_HCAS) {
		struct softib_hca *to = softib_by_unit(unit);
		struct rvt_mcast_qp *member;
		struct rvt_mcast *mcast;

		if (!to || !softib_is_active(to))
			continue;
		softib_accel_multicast(to, dgram);
		mcast = rvt_mcast_find(&to->ibport, &dgram->grh.dgid,
				       dgram->dlid);
		if (!mcast)
			continue;
		list_for_each_entry_rcu(member, &mcast->qp_list, list)
			offer(to, member->qp, dgram);
		if (atomic_dec_return(&mcast->refcount) <= 1)
			wake_up(&mcast->wait);
	}
}

static void deliver_unicast(struct softib_hca *from, struct softib_datagram *dgram)
{
	struct softib_hca *to = softib_by_lid(dgram->dlid);
	struct rvt_qp *qp = NULL;

	if (to && softib_is_active(to) && softib_accel_unicast(to, dgram))
		return;
	if (to && softib_is_active(to))
		qp = rvt_lookup_qpn(&to->rdi, &to->ibport, dgram->dqpn);
	if (qp && !(qp->ibqp.qp_type == IB_QPT_RC ||
		    qp->ibqp.qp_type == IB_QPT_UC))
		offer(to, qp, dgram);
	else
		drop(from);
}

static bool is_multicast(u32 dlid)
{
	return dlid >= be16_to_cpu(IB_MULTICAST_LID_BASE) &&
	       dlid < be16_to_cpu(IB_LID_PERMISSIVE);
}

/* Return: whether @dgram is a request to the subnet administrator. */
static bool is_sa_query(const struct rvt_qp *sqp, const struct softib_datagram *dgram)
{
	const struct ib_sa_mad *mad = dgram->data;

	return sqp->ibqp.qp_type == IB_QPT_GSI && dgram->dqpn == 1 &&
	       dgram->dlid == SOFTIB_SM_LID && dgram->len == sizeof(*mad) &&
	       mad->mad_hdr.mgmt_class == IB_MGMT_CLASS_SUBN_ADM &&
	       !(mad->mad_hdr.method & IB_MGMT_METHOD_RESP);
}

/**
 * softib_datagram_respond - deliver a response of the subnet administrator
 * @to: the port that sent the query
 * @dgram: the query, with the response as its data
 */
void softib_datagram_respond(struct softib_hca *to,
			     struct softib_datagram *dgram)
{
	struct rvt_qp *qp;

	dgram->wc.slid = SOFTIB_SM_LID;
	dgram->wc.src_qp = 1;
	dgram->solicited = true;
	rcu_read_lock();
	/* The MAD layer may have closed it, or opened another one. */
	qp = rvt_lookup_qpn(&to->rdi, &to->ibport, 1);
	if (qp)
		offer(to, qp, dgram);
	rcu_read_unlock();
}

/**
 * softib_datagram_address - set the source and destination of a datagram
 * @from: the sender's HCA
 * @ah: the address handle's attributes
 * @dgram: the datagram; the caller sets its data, queue pairs and keys
 */
void softib_datagram_address(struct softib_hca *from, struct rdma_ah_attr *ah,
			     struct softib_datagram *dgram)
{
	dgram->dlid = rdma_ah_get_dlid(ah);
	dgram->wc.status = IB_WC_SUCCESS;
	dgram->wc.opcode = IB_WC_RECV;
	dgram->wc.slid = READ_ONCE(from->lid);
	dgram->wc.sl = rdma_ah_get_sl(ah);
	dgram->wc.port_num = 1;
	if (rdma_ah_get_ah_flags(ah) & IB_AH_GRH) {
		const struct ib_global_route *route = rdma_ah_read_grh(ah);

		dgram->wc.wc_flags |= IB_WC_GRH;
		dgram->grh.version_tclass_flow =
			cpu_to_be32(6U << 28 | route->traffic_class << 20 |
				    route->flow_label);
		dgram->grh.paylen = cpu_to_be16(dgram->len);
		dgram->grh.next_hdr = 0x1b;	/* IBA transport */
		dgram->grh.hop_limit = route->hop_limit;
		softib_port_gid(from, &dgram->grh.sgid);
		dgram->grh.dgid = route->dgid;
	}
}

static void address(struct softib_hca *from, struct rvt_qp *sqp,
		    struct rvt_swqe *wqe, struct softib_datagram *dgram)
{
	u16 pkey_index = sqp->ibqp.qp_type == IB_QPT_GSI ?
		rvt_get_swqe_pkey_index(wqe) : sqp->s_pkey_index;

	dgram->dqpn = rvt_get_swqe_remote_qpn(wqe);
	dgram->qkey = rvt_get_swqe_remote_qkey(wqe);
	/* If the high bit of a Q_Key is set, the sender's own one is used. */
	if (dgram->qkey & BIT(31))
		dgram->qkey = sqp->qkey;
	dgram->pkey = rvt_get_pkey(&from->rdi, 0, pkey_index);
	dgram->solicited = wqe->wr.send_flags & IB_SEND_SOLICITED;
	dgram->wc.src_qp = sqp->ibqp.qp_num;
	if (wqe->wr.opcode == IB_WR_SEND_WITH_IMM) {
		dgram->wc.wc_flags |= IB_WC_WITH_IMM;
		dgram->wc.ex.imm_data = wqe->wr.ex.imm_data;
	}
	softib_datagram_address(from, rvt_get_swqe_ah_attr(wqe), dgram);
}

static void deliver(struct softib_hca *from, struct softib_datagram *dgram)
{
	softib_traffic_count(&from->sent, dgram->len);
	rcu_read_lock();
	if (is_multicast(dgram->dlid))
		deliver_multicast(dgram);
	else
		deliver_unicast(from, dgram);
	rcu_read_unlock();
}

/**
 * softib_datagram_carry - forward a datagram from a port to its receivers
 * @from: HCA of the sender
 * @dgram: the datagram; dropped if the port is not ACTIVE
 */
void softib_datagram_carry(struct softib_hca *from,
			   struct softib_datagram *dgram)
{
	if (softib_is_active(from))
		deliver(from, dgram);
	else
		drop(from);
}

/**
 * softib_send_datagram - send one work request to its receivers
 * @sqp: the sender
 * @wqe: the work request
 *
 * Return: the status of the completion.  A lost packet counts as a success,
 * because a sender of datagrams does not notice it.
 */
enum ib_wc_status softib_send_datagram(struct rvt_qp *sqp, struct rvt_swqe *wqe)
{
	struct softib_hca *from = to_softib(sqp->ibqp.device);
	struct softib_datagram dgram = { .len = wqe->length };

	if (!softib_is_active(from)) {
		drop(from);
		return IB_WC_SUCCESS;
	}
	dgram.data = kmalloc(max(dgram.len, 1U), GFP_KERNEL);
	if (!dgram.data) {
		drop(from);
		return IB_WC_SUCCESS;
	}
	if (dgram.len)
		gather(wqe, dgram.data);
	address(from, sqp, wqe, &dgram);

	if (is_sa_query(sqp, &dgram)) {
		softib_traffic_count(&from->sent, dgram.len);
		if (matching_pkey(from, sqp, dgram.pkey) >= 0)
			softib_sa_ask(from, &dgram);
	} else {
		deliver(from, &dgram);
	}
	kfree(dgram.data);
	return IB_WC_SUCCESS;
}
