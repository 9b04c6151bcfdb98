"""Fixed text on which an SAE is tried before anything is computed with it.

It must stay as it is: canary figures of two runs are comparable only on the same text. It was written for gapscope.
"""

TEXTS = (
    "The ferry leaves the north pier at half past seven and reaches the island before the shops open. Most of its passengers are "
    "teachers, nurses and builders who live on the mainland, where rents are lower. In winter the crossing can be rough, and the "
    "captain sometimes waits for the tide to turn. Nobody complains much. They drink tea from paper cups, read the news on their "
    "phones, and talk about football or the price of heating oil.",
    "A cell copies its DNA before it divides. An enzyme unwinds the double helix, and each strand serves as a template for a new "
    "one. Errors are rare, about one in a billion bases after repair, because the polymerase checks each base that it adds. When "
    "the repair machinery itself is damaged, mutations build up and the risk of cancer rises. Several drugs make use of this: they "
    "block a second repair pathway, so that only the tumour cells die.",
    "Question: A shop sells pencils in boxes of 12 and pens in boxes of 8. Maria buys 5 boxes of pencils and 3 boxes of pens. How "
    "many more pencils than pens does she have? Answer: She has 5 x 12 = 60 pencils and 3 x 8 = 24 pens, so she has 36 more pencils.",
    "The court held that the lease could not be ended without written notice. Although the tenant had paid late in March and again "
    "in June, the landlord had accepted both payments without protest, and so had waived the right to rely on them. The appeal was "
    "dismissed with costs. Two of the judges agreed; the third would have sent the case back for a new hearing on damages.",
    "When Amara found the letter it was already yellow at the edges. Her grandmother had never spoken of a brother, yet here was his "
    "name, in ink, beneath a drawing of a harbour. She read it twice, folded it along the old crease, and put it back behind the "
    'mirror. That evening, over soup, she asked whether anyone in the family had ever gone to sea. The spoon stopped. "Who told '
    'you?" said her grandmother.',
    "def moving_average(values, width):\n    total = sum(values[:width])\n    result = [total / width]\n    for new, old in "
    "zip(values[width:], values):\n        total += new - old\n        result.append(total / width)\n    return result\n",
    "Robin did not study for the exam because Robin felt sure of the material. How would Robin feel when the results came in lower "
    "than expected? Most people would be disappointed, some would be angry with themselves, and a few would ask the teacher for a "
    "second chance. To pour syrup without a mess, warm the jar in hot water first, then tilt it slowly over the bowl.",
    "Inflation slowed to 2.1% in August from 2.6% in July, the statistics office said on Tuesday, mainly because petrol and food "
    'became cheaper. The central bank is expected to keep its main rate unchanged next week. "We are close to the target, but '
    'services are still rising at more than four per cent a year," said an economist at a savings bank in Lyon.',
    "Patients aged 40 to 75 with type 2 diabetes were assigned at random to metformin alone or to metformin with the new agent. "
    "After 24 weeks, mean HbA1c had fallen by 0.4 and 1.1 percentage points (P<0.001). Nausea was more common in the second group "
    "(18% against 7%). Blood pressure, weight and kidney function did not differ. Does the new agent improve control of glucose?",
    "The city was founded by Greek settlers in the sixth century BC, taken by Rome in 123 BC, and rebuilt under Augustus. Its "
    "theatre, which seated some 9,000 people, was quarried for stone in the Middle Ages. Excavation began in 1904. Today the ruins "
    "lie between a motorway, an olive grove and a school, and are open to visitors from April to October.",
)
