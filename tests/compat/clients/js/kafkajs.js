// kafkajs: node kafkajs.js BOOTSTRAP NAME. A line for each thing learnt; exits 1 at the first error.
const { Kafka, CompressionTypes, ConfigResourceTypes, Partitioners, logLevel } = require('kafkajs')

const [bootstrap, name] = process.argv.slice(2)
const RECORDS = 50
const COPIES = ['plain', 'idempotent'].length * ['none', 'gzip'].length

const main = async () => {
  const kafka = new Kafka({ clientId: name, brokers: [bootstrap], logLevel: logLevel.ERROR })
  const admin = kafka.admin()
  await admin.connect()
  console.log('created', await admin.createTopics({ topics: [{ topic: name, numPartitions: 3 }], waitForLeaders: true }))
  for (const idempotent of [false, true]) {
    for (const compression of [CompressionTypes.None, CompressionTypes.GZIP]) {
      const producer = kafka.producer({ idempotent, createPartitioner: Partitioners.DefaultPartitioner })
      await producer.connect()
      const messages = Array.from({ length: RECORDS }, (_, i) => ({ key: `${i}`, value: 'value', headers: { n: `${i}` } }))
      await producer.send({ topic: name, compression, acks: -1, messages })
      await producer.disconnect()
    }
  }
  const consumer = kafka.consumer({ groupId: name })
  await consumer.connect()
  await consumer.subscribe({ topic: name, fromBeginning: true })
  const seen = {}
  await new Promise(resolve => {
    let left = RECORDS * COPIES
    const eachMessage = async ({ message }) => {
      seen[message.key] = (seen[message.key] ?? 0) + (message.headers.n.toString() === message.key.toString())
      if (--left === 0) resolve()
    }
    consumer.run({ eachMessage })
  })
  await consumer.disconnect()
  console.log('consumed', Object.keys(seen).length, 'keys', new Set(Object.values(seen)))
  const [{ partitions }] = await admin.fetchOffsets({ groupId: name, topics: [name] })
  console.log('committed', partitions.reduce((sum, p) => sum + Number(p.offset), 0))
  console.log('group', (await admin.describeGroups([name])).groups[0].state)
  const resource = { type: ConfigResourceTypes.TOPIC, name }
  await admin.alterConfigs({ resources: [{ ...resource, configEntries: [{ name: 'retention.ms', value: '1000000' }] }] })
  const described = await admin.describeConfigs({ resources: [resource] })
  console.log('retention.ms', described.resources[0].configEntries.find(e => e.configName === 'retention.ms').configValue)
  await admin.createPartitions({ topicPartitions: [{ topic: name, count: 4 }] })
  await admin.deleteTopicRecords({ topic: name, partitions: [{ partition: 0, offset: '3' }] })
  await admin.deleteGroups([name])
  await admin.deleteTopics({ topics: [name] })
  await admin.disconnect()
}

main().catch(error => { console.error(error); process.exit(1) })
