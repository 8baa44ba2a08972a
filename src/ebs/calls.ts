/** What EC2 and IAM call the calls that Holdfast can make. */
export type Ec2Action =
  | 'AttachVolume'
  | 'CreateTags'
  | 'CreateVolume'
  | 'DeleteVolume'
  | 'DescribeInstances'
  | 'DescribeInstanceTypes'
  | 'DescribeVolumes'
  | 'DescribeVolumesModifications'
  | 'DetachVolume'
  | 'ModifyVolume';

export interface CallRow {
  /** How long one try may take, in milliseconds; what has no answer by then is neither done nor failed. */
  readonly timeoutMs: number;
  /**
   * What a try that is neither done nor failed leads to: `repeat` where a second time changes nothing more (it reads,
   * carries a token, or sets what is set), `look-first` where EC2 would refuse the second time for what the first one
   * did. The caller then has to look before it asks again.
   */
  readonly unanswered: 'repeat' | 'look-first';
  /** The IAM actions that a role needs for it. */
  readonly needs: readonly `ec2:${Ec2Action}`[];
}

/** All calls of EC2 that Holdfast can make; deploy/iam-policy.json allows these and no others. */
export const EC2_CALLS: Readonly<Record<Ec2Action, CallRow>> = {
  AttachVolume: { timeoutMs: 15_000, unanswered: 'look-first', needs: ['ec2:AttachVolume'] },
  CreateTags: { timeoutMs: 15_000, unanswered: 'repeat', needs: ['ec2:CreateTags'] },
  CreateVolume: { timeoutMs: 30_000, unanswered: 'repeat', needs: ['ec2:CreateVolume', 'ec2:CreateTags'] },
  DeleteVolume: { timeoutMs: 15_000, unanswered: 'look-first', needs: ['ec2:DeleteVolume'] },
  DescribeInstances: { timeoutMs: 15_000, unanswered: 'repeat', needs: ['ec2:DescribeInstances'] },
  DescribeInstanceTypes: { timeoutMs: 15_000, unanswered: 'repeat', needs: ['ec2:DescribeInstanceTypes'] },
  DescribeVolumes: { timeoutMs: 15_000, unanswered: 'repeat', needs: ['ec2:DescribeVolumes'] },
  DescribeVolumesModifications: {
    timeoutMs: 15_000,
    unanswered: 'repeat',
    needs: ['ec2:DescribeVolumesModifications'],
  },
  DetachVolume: { timeoutMs: 15_000, unanswered: 'look-first', needs: ['ec2:DetachVolume'] },
  ModifyVolume: { timeoutMs: 15_000, unanswered: 'look-first', needs: ['ec2:ModifyVolume'] },
};

/** The tag that a volume of Holdfast carries from its creation on; the policy allows changes only where it is. */
export const CLUSTER_TAG = 'holdfast.dev/cluster';
