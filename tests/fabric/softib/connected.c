// SPDX-License-Identifier: GPL-2.0
/*
 * Connected transports, RC and UC.  The data of a work request is copied at
 * once from the memory of one HCA to that of the other.  A real HCA sends it
 * packet by packet, with the same result.
 */
#include "softib.h"

/* A work request at the responder. */
struct transfer {
	struct rvt_qp *requester;
	struct rvt_qp *responder;
	struct rvt_swqe *wqe;
	enum ib_wc_status status;		/* of the request */
	enum ib_wc_status responder_error;	/* fatal for the responder */
};

/*
 * The queue pair that @sqp is connected to, or NULL if no packet would reach
 * it.  The caller holds rcu_read_lock().
 */
static struct rvt_qp *peer_of(struct rvt_qp *sqp)
{
	struct softib_hca *from = to_softib(sqp->ibqp.device), *to;
	struct rvt_qp *qp;

	to = softib_by_lid(rdma_ah_get_dlid(&sqp->remote_ah_attr));
	if (!to || !softib_is_active(to) || !softib_is_active(from))
		return NULL;
	qp = rvt_lookup_qpn(&to->rdi, &to->ibport, sqp->remote_qpn);
	if (!qp || qp->ibqp.qp_type != sqp->ibqp.qp_type ||
	    qp->remote_qpn != sqp->ibqp.qp_num)
		return NULL;
	if (!softib_pkeys_match(rvt_get_pkey(&from->rdi, 0, sqp->s_pkey_index),
				rvt_get_pkey(&to->rdi, 0, qp->s_pkey_index))) {
		to->ibport.pkey_violations++;
		return NULL;
	}
	return qp;
}

static enum softib_verdict fail(struct transfer *t, enum ib_wc_status status,
				enum ib_wc_status responder_error)
{
	t->status = status;
	t->responder_error = responder_error;
	return SOFTIB_DONE;
}

static void copy(struct transfer *t, struct rvt_sge_state *to,
		 struct rvt_sge_state *from, u32 left, bool put_to,
		 bool put_from, bool in_order)
{
	while (left) {
		u32 len = rvt_get_sge_length(&from->sge, left);

		rvt_copy_sge(t->responder, to, from->sge.vaddr, len, put_to,
			     in_order);
		rvt_update_sge(from, len, put_from);
		left -= len;
	}
}

static struct rvt_sge_state local_memory(struct rvt_swqe *wqe)
{
	if (!wqe->wr.num_sge)
		return (struct rvt_sge_state) {};
	return (struct rvt_sge_state) {
		.sge = wqe->sg_list[0],
		.sg_list = wqe->sg_list + 1,
		.num_sge = wqe->wr.num_sge,
		.total_len = wqe->length,
	};
}

/*
 * Sets @memory to the memory of the request.  Returns false if access is
 * denied.
 */
static bool remote_memory(struct transfer *t, u32 len, u64 addr, u32 rkey,
			  int access, struct rvt_sge_state *memory)
{
	if (!rvt_rkey_ok(t->responder, &memory->sge, len, addr, rkey, access))
		return false;
	memory->sg_list = NULL;
	memory->num_sge = 1;
	memory->total_len = len;
	return true;
}

static void complete_receive(struct transfer *t, enum ib_wc_opcode opcode,
			     struct ib_wc *wc)
{
	struct rvt_qp *qp = t->responder;

	if (!test_and_clear_bit(RVT_R_WRID_VALID, &qp->r_aflags))
		return;
	wc->opcode = opcode;
	wc->status = IB_WC_SUCCESS;
	wc->wr_id = qp->r_wr_id;
	wc->byte_len = t->wqe->length;
	wc->qp = &qp->ibqp;
	wc->src_qp = qp->remote_qpn;
	wc->slid = rdma_ah_get_dlid(&qp->remote_ah_attr);
	wc->sl = rdma_ah_get_sl(&qp->remote_ah_attr);
	wc->port_num = 1;
	rvt_recv_cq(qp, wc, t->wqe->wr.send_flags & IB_SEND_SOLICITED);
}

static void take_immediate(struct transfer *t, struct ib_wc *wc)
{
	wc->wc_flags = IB_WC_WITH_IMM;
	wc->ex.imm_data = t->wqe->wr.ex.imm_data;
}

static enum softib_verdict do_send_op(struct transfer *t)
{
	struct rvt_qp *qp = t->responder;
	struct rvt_swqe *wqe = t->wqe;
	struct rvt_sge_state from = local_memory(wqe);
	struct ib_wc wc = {};
	int ret;

	ret = rvt_get_rwqe(qp, false);
	if (!ret)
		return SOFTIB_RNR;
	if (ret < 0)
		return fail(t, IB_WC_REM_OP_ERR, IB_WC_LOC_QP_OP_ERR);
	if (wqe->length > qp->r_len)
		return fail(t, IB_WC_REM_INV_REQ_ERR, IB_WC_LOC_LEN_ERR);
	if (wqe->wr.opcode == IB_WR_SEND_WITH_IMM)
		take_immediate(t, &wc);
	if (wqe->wr.opcode == IB_WR_SEND_WITH_INV &&
	    !rvt_invalidate_rkey(qp, wqe->wr.ex.invalidate_rkey)) {
		wc.wc_flags = IB_WC_WITH_INVALIDATE;
		wc.ex.invalidate_rkey = wqe->wr.ex.invalidate_rkey;
	}
	copy(t, &qp->r_sge, &from, wqe->length, true, false, false);
	rvt_put_ss(&qp->r_sge);
	complete_receive(t, IB_WC_RECV, &wc);
	return SOFTIB_DONE;
}

static enum softib_verdict do_write_op(struct transfer *t)
{
	struct rvt_qp *qp = t->responder;
	struct rvt_swqe *wqe = t->wqe;
	struct rvt_sge_state from = local_memory(wqe), to;
	struct ib_wc wc = {};
	int ret;

	if (!(qp->qp_access_flags & IB_ACCESS_REMOTE_WRITE))
		return fail(t, IB_WC_REM_INV_REQ_ERR, IB_WC_LOC_QP_OP_ERR);
	if (wqe->wr.opcode == IB_WR_RDMA_WRITE_WITH_IMM) {
		take_immediate(t, &wc);
		ret = rvt_get_rwqe(qp, true);
		if (!ret)
			return SOFTIB_RNR;
		if (ret < 0)
			return fail(t, IB_WC_REM_OP_ERR, IB_WC_LOC_QP_OP_ERR);
	}
	if (wqe->length) {
		if (!remote_memory(t, wqe->length, wqe->rdma_wr.remote_addr,
				   wqe->rdma_wr.rkey, IB_ACCESS_REMOTE_WRITE,
				   &to))
			return fail(t, IB_WC_REM_ACCESS_ERR,
				    IB_WC_LOC_PROT_ERR);
		/* User space polls for the last byte, so it is written last. */
		copy(t, &to, &from, wqe->length, true, false,
		     rvt_is_user_qp(qp));
	}
	if (wqe->wr.opcode == IB_WR_RDMA_WRITE_WITH_IMM)
		complete_receive(t, IB_WC_RECV_RDMA_WITH_IMM, &wc);
	return SOFTIB_DONE;
}

static enum softib_verdict do_read_op(struct transfer *t)
{
	struct rvt_swqe *wqe = t->wqe;
	struct rvt_sge_state to = local_memory(wqe), from;

	if (!(t->responder->qp_access_flags & IB_ACCESS_REMOTE_READ))
		return fail(t, IB_WC_REM_INV_REQ_ERR, IB_WC_LOC_QP_OP_ERR);
	if (!wqe->length)
		return SOFTIB_DONE;
	if (!remote_memory(t, wqe->length, wqe->rdma_wr.remote_addr,
			   wqe->rdma_wr.rkey, IB_ACCESS_REMOTE_READ, &from))
		return fail(t, IB_WC_REM_ACCESS_ERR, IB_WC_LOC_PROT_ERR);
	copy(t, &to, &from, wqe->length, false, true, false);
	return SOFTIB_DONE;
}

static enum softib_verdict do_atomic_op(struct transfer *t)
{
	struct ib_atomic_wr *wr = &t->wqe->atomic_wr;
	struct rvt_sge_state memory;
	u64 *local = (u64 *)t->wqe->sg_list[0].vaddr;

	if (!(t->responder->qp_access_flags & IB_ACCESS_REMOTE_ATOMIC) ||
	    (wr->remote_addr & (sizeof(u64) - 1)))
		return fail(t, IB_WC_REM_INV_REQ_ERR, IB_WC_LOC_QP_OP_ERR);
	if (!remote_memory(t, sizeof(u64), wr->remote_addr, wr->rkey,
			   IB_ACCESS_REMOTE_ATOMIC, &memory))
		return fail(t, IB_WC_REM_ACCESS_ERR, IB_WC_LOC_PROT_ERR);
	if (wr->wr.opcode == IB_WR_ATOMIC_FETCH_AND_ADD)
		*local = atomic64_fetch_add(wr->compare_add,
					    (atomic64_t *)memory.sge.vaddr);
	else
		*local = cmpxchg((u64 *)memory.sge.vaddr, wr->compare_add,
				 wr->swap);
	rvt_put_mr(memory.sge.mr);
	return SOFTIB_DONE;
}

/* Executes the request at the responder, whose r_lock is held. */
static enum softib_verdict execute(struct transfer *t)
{
	switch (t->wqe->wr.opcode) {
	case IB_WR_SEND:
	case IB_WR_SEND_WITH_IMM:
	case IB_WR_SEND_WITH_INV:
		return do_send_op(t);
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_WRITE_WITH_IMM:
		return do_write_op(t);
	case IB_WR_RDMA_READ:
		return do_read_op(t);
	case IB_WR_ATOMIC_CMP_AND_SWP:
	case IB_WR_ATOMIC_FETCH_AND_ADD:
		return do_atomic_op(t);
	default:
		return fail(t, IB_WC_LOC_QP_OP_ERR, IB_WC_SUCCESS);
	}
}

/* Memory registration and invalidation affect only the sender. */
static bool do_local_op(struct rvt_qp *sqp, struct rvt_swqe *wqe,
			enum ib_wc_status *status)
{
	if (wqe->wr.opcode == IB_WR_REG_MR)
		return true;
	if (wqe->wr.opcode != IB_WR_LOCAL_INV)
		return false;
	if (!(wqe->wr.send_flags & RVT_SEND_COMPLETION_ONLY)) {
		if (rvt_invalidate_rkey(sqp, wqe->wr.ex.invalidate_rkey))
			*status = IB_WC_LOC_PROT_ERR;
		atomic_dec(&sqp->local_ops_pending);
	}
	return true;
}

static void account(struct rvt_qp *from, struct rvt_qp *to, u32 octets)
{
	struct softib_hca *source = to_softib(from->ibqp.device);
	struct softib_hca *sink = to_softib(to->ibqp.device);
	u32 packets = max(1U, DIV_ROUND_UP(octets, max(from->pmtu, 256U)));

	atomic64_add(packets, &source->sent.packets);
	atomic64_add(octets, &source->sent.octets);
	atomic64_add(packets, &sink->received.packets);
	atomic64_add(octets, &sink->received.octets);
}

/* A UC sender cannot distinguish a lost packet from a sent one. */
static enum softib_verdict as_seen_by_sender(struct rvt_qp *sqp,
					     enum softib_verdict verdict,
					     enum ib_wc_status *status)
{
	if (sqp->ibqp.qp_type == IB_QPT_RC)
		return verdict;
	*status = IB_WC_SUCCESS;
	return SOFTIB_DONE;
}

/**
 * softib_send_connected - execute one work request of an RC or UC queue pair
 * @sqp: the requester
 * @wqe: the work request
 * @status: set for SOFTIB_DONE: the status of the request's completion
 * @rnr_timer: set for SOFTIB_RNR: the responder's RNR NAK timer field
 */
enum softib_verdict softib_send_connected(struct rvt_qp *sqp,
					  struct rvt_swqe *wqe,
					  enum ib_wc_status *status,
					  u8 *rnr_timer)
{
	struct transfer t = { .requester = sqp, .wqe = wqe };
	enum softib_verdict verdict = SOFTIB_LOST;
	struct rvt_qp *qp;

	if (do_local_op(sqp, wqe, status))
		return SOFTIB_DONE;

	rcu_read_lock();
	qp = peer_of(sqp);
	if (!qp)
		goto out;
	t.responder = qp;
	spin_lock_irq(&qp->r_lock);
	if (ib_rvt_state_ops[qp->state] & RVT_PROCESS_RECV_OK) {
		if (qp->state == IB_QPS_RTR && !(qp->r_flags & RVT_R_COMM_EST))
			rvt_comm_est(qp);
		verdict = execute(&t);
		*status = t.status;
		*rnr_timer = qp->r_min_rnr_timer;
		if (t.responder_error != IB_WC_SUCCESS)
			rvt_rc_error(qp, t.responder_error);
		if (verdict == SOFTIB_DONE && t.status == IB_WC_SUCCESS)
			account(sqp, qp, wqe->length);
	}
	spin_unlock_irq(&qp->r_lock);
out:
	rcu_read_unlock();
	return as_seen_by_sender(sqp, verdict, status);
}
